package setup

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/testerfile"
)

// Env returns the values of harness.env: from the environment of this process, else from the env file's variables, else
// from harness.secrets, whose commands write to stderr.
func Env(ctx context.Context, t *testerfile.File, file map[string]string, stderr io.Writer) (map[string]string, error) {
	file = maps.Clone(file)
	for name, source := range t.Harness.Secrets {
		if os.Getenv(name) != "" || file[name] != "" {
			continue
		}
		var err error
		if file[name], err = secret(ctx, source, stderr); err != nil {
			return nil, compiler.Problems{t.Problem("$.harness.secrets."+name, "", err.Error())}
		}
	}
	return t.ResolveEnv(os.Environ(), file)
}

// secretTime is how long a command of harness.secrets may take: somebody may have to type.
const secretTime = 5 * time.Minute

// secret returns the value of a source without white space around it. No error quotes it.
func secret(ctx context.Context, source testerfile.SecretSource, stderr io.Writer) (string, error) {
	if source.File != "" {
		text, err := os.ReadFile(source.File)
		return strings.TrimSpace(string(text)), err
	}
	ctx, cancel := context.WithTimeout(ctx, secretTime)
	defer cancel()
	args := source.Command.Args()
	command := exec.CommandContext(ctx, args[0], args[1:]...)
	command.Stdin, command.Stderr = os.Stdin, stderr
	text, err := command.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w", args[0], err)
	}
	return strings.TrimSpace(string(text)), err
}
