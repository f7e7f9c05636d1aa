package patch

// NamesOfTests returns the globs of test files and of directories of tests.
func NamesOfTests() (files, directories []string) { return testFiles(), testDirectories() }
