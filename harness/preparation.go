package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/runtime"
)

// A Preparation is a command that changes an image before any harness runs in it: a step of a
// build, or a task's set-up. It runs in its own sandbox.
type Preparation struct {
	Name   string // for people
	Image  runtime.Image
	Args   []string
	Env    []string // NAME=value, over the image's
	Dir    string   // absolute; "" means the image's
	User   string   // "" means the image's
	Mounts []runtime.Mount

	Capabilities []string       // of the command; see runtime.Config
	Limits       runtime.Limits // LayerBytes bounds what the command writes
	Wall         time.Duration
	Egress       Egress
	Output       io.Writer // receives what the command prints as it is printed
}

// ErrPreparation means that a command of a preparation failed.
var ErrPreparation = errors.New("preparation failed")

// maxSaid and saidLines bound what an error quotes of a command that failed: bytes of each stream, and lines.
const maxSaid, saidLines = 4 << 10, 10

// Run runs the command, and writes its changes to the image as a layer. An error that matches
// ErrPreparation is the command's fault, and quotes the end of what the command printed.
func (p Preparation) Run(ctx context.Context, e Engine, to io.Writer) (report layer.Report, err error) {
	session, err := p.Egress.open(p.Name, 1, nil)
	if err != nil {
		return report, err
	}
	defer func() { _, err = session.close(Result{}, err) }()
	sandbox, err := e.Create(ctx, runtime.Config{
		Name: p.Name, Image: p.Image, Machine: true, Capabilities: p.Capabilities, Limits: p.Limits, User: p.User, Workdir: p.Dir,
		Env: append(session.env(), p.Env...), Mounts: append(session.mounts(), p.Mounts...), Network: session.network(),
	})
	if err != nil {
		return report, err
	}
	exit, err := sandbox.Exec(ctx, runtime.Process{Args: p.Args, Wall: p.Wall, Stdout: p.Output, Stderr: p.Output, OutputBytes: maxSaid})
	if err == nil && !exit.Success() {
		said := ""
		if lines := strings.Split(strings.TrimSpace(exit.Stdout.String()+exit.Stderr.String()), "\n"); lines[0] != "" {
			said = ":\n\t" + strings.Join(lines[max(0, len(lines)-saidLines):], "\n\t")
		}
		err = fmt.Errorf("%w: the command %s%s", ErrPreparation, exit, said)
	}
	var changes runtime.Changes
	if err == nil {
		changes, err = sandbox.Changes()
	}
	if err == nil {
		const perEntry = 4 << 10 // bytes of the bound
		report, err = layer.Write(ctx, to, changes, layer.Budget{Bytes: p.Limits.LayerBytes, Entries: max(1000, p.Limits.LayerBytes/perEntry)})
	}
	return report, errors.Join(err, sandbox.Close(ctx))
}
