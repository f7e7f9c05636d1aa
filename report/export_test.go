package report

// Unexported names for tests.
var (
	Chance    = chance
	ReadTrace = readTrace
)
