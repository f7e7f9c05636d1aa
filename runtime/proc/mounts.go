package proc

import (
	"bufio"
	"bytes"
	"fmt"
	"os"

	"github.com/moby/sys/mountinfo"
)

// Mounts reads a table of mounts, such as /proc/self/mountinfo (proc(5)), parents first; a
// nil filter takes all. It skips lines that are too long for the library. Any user of the
// host can cause such a line with a long path or option, and no mount that sbench looks for
// has one.
func Mounts(table string, filter mountinfo.FilterFunc) ([]*mountinfo.Info, error) {
	text, err := os.ReadFile(table)
	if err != nil {
		return nil, fmt.Errorf("read the table of mounts: %w", err)
	}
	var short []byte
	for line := range bytes.Lines(text) {
		if len(line) < bufio.MaxScanTokenSize {
			short = append(short, line...)
		}
	}
	found, err := mountinfo.GetMountsFromReader(bytes.NewReader(short), filter)
	if err != nil {
		return nil, fmt.Errorf("read the table of mounts: %w", err)
	}
	return found, nil
}
