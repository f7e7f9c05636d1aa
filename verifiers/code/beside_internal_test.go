package code

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/internal/test/fake"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/pool"
)

// TestEndsBlind: without a reference, a candidate that ends blind tests and passes the tests is doubtful.
func TestEndsBlind(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("this host has no python3")
	}
	supervise := func(_ context.Context, p *fake.Proc) fake.Status {
		say := func(letter, text string) { _, _ = fmt.Fprintf(p.Stdout, "%s%09d%s", letter, len(text), text) }
		say("c", "")
		for head := make([]byte, 30); ; {
			if _, err := io.ReadFull(p.Stdin, head); err != nil {
				return fake.Status{}
			}
			size, _ := strconv.Atoi(strings.TrimLeft(string(head[20:]), "0"))
			text := make([]byte, size)
			var request struct{ Token, Tests, After, Solution string }
			_, err := io.ReadFull(p.Stdin, text)
			if err != nil || json.Unmarshal(text, &request) != nil {
				return fake.Status{Code: 1}
			}
			switch {
			case string(head[10:20]) == "0000000001":
				say("r", request.Token+" refused ")
			case strings.Contains(request.Tests, "_sbench_ask"): // the candidate ends the process
			case request.After != "":
				say("r", request.Token+" failed ")
			default:
				say("r", request.Token+" passed ")
			}
			say("e", "exit 0")
			say("c", "")
		}
	}
	list := func(ctx context.Context, p *fake.Proc) fake.Status {
		cmd := exec.CommandContext(ctx, "python3", p.Args[1:]...)
		cmd.Stdin, cmd.Stdout = p.Stdin, p.Stdout
		if cmd.Run() != nil {
			return fake.Status{Code: 1}
		}
		return fake.Status{}
	}
	engine := &fake.Engine{Directory: t.TempDir(), Lookup: func(args []string) fake.Program {
		if slices.Contains(args, "-c") {
			return list
		}
		return supervise
	}}
	in := verifiers.Input{Task: &compiler.Task{}, Limits: runtime.DefaultLimits(), Code: pool.New(engine), OutputBytes: 1 << 10, Timeout: 1 << 30}
	in.Candidate.Text = "def f(x): ..."
	c := &codeCheck{in: in, eval: family.CodeCompletionEval{Language: "python", Tests: "assert f(1) == 2\n"}, engine: engine}
	v, err := c.verify(t.Context())
	if err != nil || v.Status != verifiers.Passed || v.Metadata[verifiers.Doubtful] != true {
		t.Errorf("%v: %+v", err, v)
	}
	if err := in.Code.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
