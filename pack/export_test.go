package pack

// Move is what relocating does to one script.
func Move(text, from, to string) string { return move{from, to}.apply(text) }
