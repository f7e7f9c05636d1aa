package sandbox_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
)

// readTwice reads all files in /proc except those of processes, waits for a line of input, and
// prints the names of the files that have changed.
const readTwice = `
import os
def read():
    found = {}
    for directory, directories, files in os.walk("/proc"):
        if directory == "/proc": directories[:] = [f for f in directories if not f.isdigit() and f != "thread-self"]
        for name in files:
            path = os.path.join(directory, name)
            if path in ("/proc/kmsg", "/proc/sysrq-trigger"): continue
            try: fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            except OSError: continue
            try: found[path] = os.read(fd, 65536)
            except OSError: pass
            os.close(fd)
    return found
before = read()
print("ready", flush=True)
input()
for path, text in sorted(read().items()):
    if before.get(path) != text: print(path)
`

// TestProcTellsLittle: while another sandbox lives and ends, nothing in a sandbox's /proc changes
// except the files that docs/sandbox.md names, which programs cannot do without.
func TestProcTellsLittle(t *testing.T) {
	w := newWorld(t)
	sandbox := create(t, w.run, w.config())
	said, ready := io.Pipe()
	input, tell := io.Pipe()
	type end struct {
		exit runtime.Exit
		err  error
	}
	ended := make(chan end, 1)
	go func() {
		exit, err := sandbox.Exec(context.Background(), runtime.Process{Args: []string{"python3", "-c", readTwice}, Stdin: input, Stdout: ready, Wall: wall})
		_ = ready.Close()
		ended <- end{exit, err}
	}()
	if _, err := said.Read(make([]byte, 6)); err != nil {
		t.Fatal(err, (<-ended).exit)
	}
	go func() { _, _ = io.Copy(io.Discard, said) }()
	busy := "exec 3<>/dev/ptmx; for i in 1 2 3 4 5 6 7 8 9; do mkdir /tmp/$i; cat /etc/passwd >/tmp/$i/x; done; ls -R /usr >/dev/null"
	if exit := w.runOnce(t, w.config(), runtime.Process{Args: []string{"bash", "-c", busy}}); !exit.Success() {
		t.Errorf("%v %s", exit, exit.Stderr.String())
	}
	_, err := io.WriteString(tell, "\n")
	must.Report(t, err)
	e := <-ended
	if e.err != nil || !e.exit.Success() {
		t.Fatal(e.exit, e.err, e.exit.Stderr.String())
	}
	must.Report(t, tell.Close())
	known := []string{"ready", "/proc/loadavg", "/proc/meminfo", "/proc/stat", "/proc/uptime", "/proc/sys/kernel/random/uuid", "/proc/sys/kernel/random/entropy_avail"}
	for path := range strings.FieldsSeq(e.exit.Stdout.String()) {
		if !slices.Contains(known, path) {
			t.Errorf("%s changes with what a neighbour does", path)
		}
	}
}
