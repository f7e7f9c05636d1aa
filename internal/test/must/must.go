// Package must ends tests at errors that they are not about.
package must

import "testing"

// Do ends the test if err is not nil.
func Do(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
