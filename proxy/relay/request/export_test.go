package request

// CheckJSON returns the error of parse, and the number of values.
func CheckJSON(data []byte) (int, error) {
	_, n, err := parse(data)
	return n, err
}
