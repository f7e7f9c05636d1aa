package fake_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/securebench/sbench/internal/test/fake"
	"github.com/securebench/sbench/internal/test/runtimetest"
	"github.com/securebench/sbench/runtime"
)

func TestContract(t *testing.T) {
	e := &fake.Engine{Lookup: lookup, Directory: t.TempDir()}
	runtimetest.Contract(t, e, runtime.Image{Ref: "fake"})
}

// lookup imitates the commands of the contract suite.
func lookup(args []string) fake.Program {
	if args[0] != "sh" {
		return nil
	}
	script := args[len(args)-1]
	if code, ok := strings.CutPrefix(script, "exit "); ok {
		n, err := strconv.Atoi(code)
		if err != nil {
			return nil
		}
		return func(context.Context, *fake.Proc) fake.Status { return fake.Status{Code: n} }
	}
	return map[string]fake.Program{
		"kill -SEGV $$": func(context.Context, *fake.Proc) fake.Status { return fake.Status{Signal: 11} },
		"sleep 1000":    sleep,
		"echo ready; sleep 1000": func(ctx context.Context, p *fake.Proc) fake.Status {
			print(p.Stdout, "ready\n")
			return sleep(ctx, p)
		},
		"trap '' TERM; echo ready; while :; do sleep 1000; done": func(ctx context.Context, p *fake.Proc) fake.Status {
			print(p.Stdout, "ready\n")
			<-ctx.Done()
			return fake.Status{Signal: 9}
		},
		"cat; echo oops >&2": func(_ context.Context, p *fake.Proc) fake.Status {
			_, err := io.Copy(p.Stdout, p.Stdin)
			print(p.Stderr, "oops\n")
			return ok(err)
		},
		"echo first; head -c 5000000 /dev/zero; echo last": func(_ context.Context, p *fake.Proc) fake.Status {
			print(p.Stdout, "first\n"+strings.Repeat("\x00", 5_000_000)+"last\n")
			return fake.Status{}
		},
		`echo "$A $B $PWD"`: func(_ context.Context, p *fake.Proc) fake.Status {
			print(p.Stdout, p.Env["A"]+" "+p.Env["B"]+" "+p.Dir+"\n")
			return fake.Status{}
		},
		"echo kept > /kept": writes("/kept", "kept\n"),
		"cat /kept":         func(_ context.Context, p *fake.Proc) fake.Status { return show(p, "/kept") },
		"echo x > /new && exit 0; exit 7": func(_ context.Context, p *fake.Proc) fake.Status {
			if write(p, "/new", "x\n") == nil {
				return fake.Status{}
			}
			return fake.Status{Code: 7}
		},
		"(while :; do echo alive >> /log; sleep 0.01; done) & until test -e /log; do :; done": func(_ context.Context, p *fake.Proc) fake.Status {
			p.Go(func(ctx context.Context) {
				for ctx.Err() == nil {
					_ = write(p, "/log", time.Now().String())
				}
			})
			return ok(write(p, "/log", ""))
		},
		"cp /log /before; sleep 0.2; cmp /log /before": func(_ context.Context, p *fake.Proc) fake.Status {
			before := read(p, "/log")
			time.Sleep(50 * time.Millisecond)
			if !bytes.Equal(before, read(p, "/log")) {
				return fake.Status{Code: 1}
			}
			return fake.Status{}
		},
		"cat /work/trusted/test > /work/out || exit 1; echo x > /work/trusted/test && exit 2; exit 0": func(_ context.Context, p *fake.Proc) fake.Status {
			if write(p, "/work/out", string(read(p, "/work/trusted/test"))) != nil {
				return fake.Status{Code: 1}
			}
			if write(p, "/work/trusted/test", "x") == nil {
				return fake.Status{Code: 2}
			}
			return fake.Status{}
		},
		"cat /work/file; echo new > /work/file; echo more > /work/other; cat /work/file": func(_ context.Context, p *fake.Proc) fake.Status {
			show(p, "/work/file")
			_, _ = write(p, "/work/file", "new\n"), write(p, "/work/other", "more\n")
			return show(p, "/work/file")
		},
		"mkdir /left; echo x > /left/file; ln -s /etc /link": func(_ context.Context, p *fake.Proc) fake.Status {
			dir, _ := p.Path("/left")
			link, _ := p.Path("/link")
			return ok(errors.Join(os.Mkdir(dir, 0o755), write(p, "/left/file", "x\n"), os.Symlink("/etc", link)))
		},
		"cat /agent/left/file; echo y > /agent/left/file && exit 2; exit 0": func(_ context.Context, p *fake.Proc) fake.Status {
			if write(p, "/agent/left/file", "y") == nil {
				return fake.Status{Code: 2}
			}
			return show(p, "/agent/left/file")
		},
		"echo made > /made; rm -r /etc/passwd": writes("/made", "made\n"),
		"cat /made; test -e /etc/passwd && echo whole; echo changed > /made": func(_ context.Context, p *fake.Proc) fake.Status {
			show(p, "/made")
			return ok(write(p, "/made", "changed\n"))
		},
	}[script]
}

func sleep(ctx context.Context, p *fake.Proc) fake.Status {
	select {
	case <-p.Term:
		return fake.Status{Signal: 15}
	case <-ctx.Done():
		return fake.Status{Signal: 9}
	}
}

func print(w io.Writer, s string) { _, _ = io.WriteString(w, s) } // a capture never fails

func ok(err error) fake.Status {
	if err != nil {
		return fake.Status{Code: 1}
	}
	return fake.Status{}
}

func writes(name, content string) fake.Program {
	return func(_ context.Context, p *fake.Proc) fake.Status { return ok(write(p, name, content)) }
}

func write(p *fake.Proc, name, content string) error {
	host, writable := p.Path(name)
	if !writable {
		return fmt.Errorf("%s: read-only file system", name)
	}
	return os.WriteFile(host, []byte(content), 0o644)
}

func read(p *fake.Proc, name string) []byte {
	host, _ := p.Path(name)
	content, err := os.ReadFile(host)
	if err != nil {
		return nil
	}
	return content
}

func show(p *fake.Proc, name string) fake.Status {
	_, err := p.Stdout.Write(read(p, name))
	return ok(err)
}
