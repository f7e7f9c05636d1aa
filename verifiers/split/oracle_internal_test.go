package split

import (
	"bufio"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/securebench/sbench/internal/test/must"
)

// TestEndedOracle: an oracle that has ended is broken, whether sbench writes to it or reads from it.
func TestEndedOracle(t *testing.T) {
	input, stdin := net.Pipe()
	stdout, output := net.Pipe()
	o := &oracle{limit: time.Minute, stdin: stdin, stdout: stdout, lines: bufio.NewReader(stdout), kill: func() {}, ended: make(chan struct{})}
	close(o.ended)
	must.Do(t, errors.Join(input.Close(), output.Close()))
	_, heard := o.hear(t.Context())
	for what, err := range map[string]error{"say": o.say(t.Context(), "case"), "hear": heard} {
		if b := new(broken); !errors.As(err, &b) || b.part != oracleDir {
			t.Errorf("%s: %v", what, err)
		}
	}
}
