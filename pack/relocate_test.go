package pack_test

import (
	"testing"

	"github.com/securebench/sbench/pack"
)

// TestMove: only whole paths are moved.
func TestMove(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"alone", "/tests", "/new"},
		{"below", "cat /tests/a.txt", "cat /new/a.txt"},
		{"quoted", `open("/tests/a")`, `open("/new/a")`},
		{"single quotes", `cd '/tests'`, `cd '/new'`},
		{"python prefix", `f"/tests/{x}" rb'/tests'`, `f"/new/{x}" rb'/new'`},
		{"assignment", "DIR=/tests;PATH=$PATH:/tests", "DIR=/new;PATH=$PATH:/new"},
		{"redirection", "x >/tests/out", "x >/new/out"},
		{"part of another", "/app/tests ./tests ../tests ~/tests a/tests", "/app/tests ./tests ../tests ~/tests a/tests"},
		{"longer name", "/tests2 /tests.d /tests-old /tests_x", "/tests2 /tests.d /tests-old /tests_x"},
		{"after a variable", `$DIR/tests ${DIR}/tests "$DIR"/tests "${DIR}"/tests $(pwd)/tests`, `$DIR/tests ${DIR}/tests "$DIR"/tests "${DIR}"/tests $(pwd)/tests`},
		{"several", "/tests /tests:/tests", "/new /new:/new"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := pack.Move(tt.text, "/tests", "/new"); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
