package progress

import (
	"bytes"
	"io"
	"os"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/pty"
)

// TestIsTerminal: a bar is drawn only on a terminal that somebody may watch.
func TestIsTerminal(t *testing.T) {
	p, flat := pty.New(t, 80, 24), pty.New(t, 0, 0)
	r, w, err := os.Pipe()
	must.Do(t, err)
	defer func() { _, _ = r.Close(), w.Close() }()
	for _, test := range []struct {
		name string
		out  io.Writer
		env  map[string]string
		want bool
	}{
		{"a terminal", p.Slave, map[string]string{"TERM": "xterm"}, true},
		{"dumb", p.Slave, map[string]string{"TERM": "dumb"}, false},
		{"no kind of terminal", p.Slave, nil, false},
		{"continuous integration", p.Slave, map[string]string{"TERM": "xterm", "CI": "true"}, false},
		{"a terminal without a size", flat.Slave, map[string]string{"TERM": "xterm"}, false},
		{"a pipe", w, map[string]string{"TERM": "xterm"}, false},
		{"a buffer", &bytes.Buffer{}, map[string]string{"TERM": "xterm"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			must.Equal(t, test.want, isTerminal(test.out, func(name string) string { return test.env[name] }))
		})
	}
}
