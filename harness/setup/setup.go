// Package setup makes the producer and the network access that a tester file asks for. It checks what package
// compiler cannot know of the harness section, and reads the files that the section names. It starts no sandbox.
//
// [Of] finds the harness of a tester file. [Problems] returns everything that is wrong with the section.
package setup

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/harness/agentcli"
	"github.com/securebench/sbench/proxy/domain"
	"github.com/securebench/sbench/proxy/relay"
)

// A Harness is the harness of a tester file.
type Harness struct {
	tester *testerfile.File
	agent  harness.CLI // zero for a command
	file   string      // the agent's descriptor; "" unless it is the tester's own
}

// Of returns the harness that the tester file names or describes.
func Of(t *testerfile.File) (h Harness, problems compiler.Problems) {
	h.tester = t
	if t.Harness.Type != harness.CustomAgent {
		h.agent, _ = harness.CLIOf(t.Harness.Type)
		return h, h.serverProblems()
	}
	h.file = beside(t.Path, t.Harness.Config.Own["descriptor"])
	text, err := os.ReadFile(h.file)
	if err != nil {
		return h, h.problem("config.descriptor", "", document.Bare(err).Error())
	}
	if h.agent, problems = harness.ParseDescriptor(h.file, text); problems != nil {
		return h, problems
	}
	if h.agent.Directory != "" {
		h.agent.Directory = beside(h.file, h.agent.Directory)
	}
	known := make([]string, len(h.agent.Config))
	for i, f := range h.agent.Config {
		known[i] = f.Name
	}
	for name, value := range h.options() {
		switch {
		case !slices.Contains(known, name):
			problems = append(problems, h.problem("config.options."+name, "its descriptor names: "+cmp.Or(strings.Join(known, ", "), "none"), h.agent.Name+" has no such key")...)
		case !schemaWord.MatchString(value):
			problems = append(problems, h.problem("config.options."+name, "letters, digits and . _ + -", "is no word")...)
		}
	}
	return h, append(problems, h.serverProblems()...)
}

// Problems returns what is wrong with the harness section of a tester file, apart from what package compiler
// reports.
func Problems(t *testerfile.File) compiler.Problems {
	h, problems := Of(t)
	if problems == nil {
		problems = h.keyProblems()
	}
	_, egressErr := Egress(t)
	_, filesErr := h.files(context.Background())
	for _, err := range []error{egressErr, filesErr} {
		if also := (compiler.Problems{}); errors.As(err, &also) {
			problems = append(problems, also...)
		}
	}
	return problems
}

// Egress returns what the tester file lets a harness reach. The error holds compiler.Problems.
func Egress(t *testerfile.File) (harness.Egress, error) {
	bundle := t.Runtime.Network.CABundle
	if bundle != "" {
		info, err := os.Stat(bundle)
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s is not a regular file", bundle)
		}
		if err != nil {
			return harness.Egress{}, compiler.Problems{t.Problem("$.runtime.network.ca_bundle", "the path is relative to the tester file", err.Error())}
		}
	}
	c := t.Harness.Config
	return harness.Egress{
		Domains: c.AllowedDomains, Transparent: t.Runtime.Network.Transparent, CABundle: bundle, WorkingClock: c.WorkingClock,
	}, nil
}

// problem returns a problem of a key of the harness section.
func (h Harness) problem(key, hint, message string) compiler.Problems {
	return compiler.Problems{h.tester.Problem("$.harness."+key, hint, message)}
}

// beside returns the path of name, which stands in file: name is absolute, or relative to the directory of file.
func beside(file, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(file), name)
}

// serverProblems returns a problem for each server of tools that the agent cannot use or cannot reach.
func (h Harness) serverProblems() (problems compiler.Problems) {
	c := h.tester.Harness.Config
	for name, s := range c.MCPServers {
		address, err := url.Parse(s.URL)
		switch {
		case !h.agent.Supports(s):
			problems = append(problems, h.problem("config.mcp_servers."+name, "describe how under mcp in its descriptor", h.agent.Name+" cannot use such a server")...)
		case s.URL != "" && (err != nil || !slices.ContainsFunc(c.AllowedDomains, func(d domain.Domain) bool { return d.Allows(address.Hostname()) })):
			problems = append(problems, h.problem("config.mcp_servers."+name+".url", "add its name there", "harness.config.allowed_domains has no "+address.Hostname())...)
		}
	}
	slices.SortFunc(problems, func(a, b compiler.Problem) int { return cmp.Compare(a.Path, b.Path) })
	return problems
}

// schemaWord matches what schema.Word allows, without white space around it.
var schemaWord = regexp.MustCompile(`^[a-zA-Z0-9._+-]+$`)

// options returns the values of the agent's own keys, "" for a value that is no word.
func (h Harness) options() map[string]string {
	var given map[string]any
	_ = json.Unmarshal([]byte(h.tester.Harness.Config.Own["options"]), &given) // absent, or an object
	options := map[string]string{}
	for name, value := range given {
		switch value.(type) {
		case string, float64, bool:
			options[name] = fmt.Sprint(value)
		default:
			options[name] = ""
		}
	}
	return options
}

// keys returns the variables with the keys of the harness's provider, if it has one, and the message that it needs one of
// them.
func (h Harness) keys() (names []string, need string) {
	if p := h.tester.Harness.Config.Provider; p != nil {
		return []string{p.Key}, "harness.config.provider needs its key"
	}
	for _, c := range h.agent.Credentials {
		names = append(names, c.Name)
	}
	return names, h.agent.Name + " needs a key of its provider"
}

// keyProblems returns a problem if harness.env names none of the keys of the harness's provider.
func (h Harness) keyProblems() compiler.Problems {
	names, need := h.keys()
	if len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return slices.Contains(h.tester.Harness.Env, name) }) {
		return nil
	}
	return h.problem("env", "name "+strings.Join(names, " or ")+" here, and set it in the environment or the env file; it stays outside of the sandbox", need)
}

// NoKeys returns values that stand for the keys of the harness's provider, for a producer that runs nothing.
func (h Harness) NoKeys() map[string]string {
	names, _ := h.keys()
	if len(names) == 0 {
		return nil
	}
	return map[string]string{names[0]: "none"}
}

// CheckProvider checks that the provider of p, if it has one, can be reached and accepts the key. The error is
// harness.ErrProvider.
func (h Harness) CheckProvider(ctx context.Context, p harness.Producer) error {
	to := p.Identity().Relay
	if to == nil {
		return nil
	}
	err := relay.Check(ctx, *to)
	switch {
	case errors.Is(err, relay.ErrRefused):
		names, _ := h.keys()
		return fmt.Errorf("%w: harness.env: %w: set another %s", harness.ErrProvider, err, strings.Join(names, " or "))
	case errors.Is(err, relay.ErrUnreachable):
		return fmt.Errorf("%w: harness.config.base_url: %w", harness.ErrProvider, err)
	}
	return err
}

// Producer returns the producer. env has the values of harness.env; tools returns the cache of agents' programs.
// The error holds compiler.Problems, or is harness.ErrNotInstalled if the registry cannot be asked.
func (h Harness) Producer(ctx context.Context, env map[string]string, tools func() (*agentcli.Cache, error)) (harness.Producer, error) {
	if h.agent.Name == "" {
		return h.command(ctx, env)
	}
	i := slices.IndexFunc(h.agent.Credentials, func(c testerfile.Credential) bool { return env[c.Name] != "" })
	if i < 0 {
		return nil, h.keyProblems()
	}
	key, c := h.agent.Credentials[i], h.tester.Harness.Config
	cache, err := tools()
	if err != nil {
		return nil, err
	}
	made := &harness.Agent{HarnessConfig: c, CLI: h.agent, Tools: cache, Arch: goruntime.GOARCH}
	if made.Relay, err = harness.RelayTo(h.agent.Provider, env[key.Name], c); err != nil {
		return nil, err
	}
	made.Relay.Bearer = key.Bearer
	if made.Files, err = h.files(ctx); err != nil {
		return nil, err
	}
	if h.agent.Directory != "" {
		made.Version = ""
		if made.Digest, err = readable(ctx, h.agent.Directory); err != nil {
			return nil, h.problem("config.descriptor", "", fmt.Sprintf("its directory: %v: everything in it has to be readable by others (chmod -R o+rX)", err))
		}
	}
	if h.file != "" {
		made.Own, made.Digest = h.options(), fmt.Sprintf("sha256:%x", sha256.Sum256(slices.Concat([]byte(made.Digest), h.agent.Descriptor)))
	}
	if h.agent.Directory != "" {
		return made, nil
	}
	pkg, err := h.agent.Package(goruntime.GOARCH, false)
	if err != nil {
		return nil, h.problem("type", "", err.Error())
	}
	made.Version, err = cache.Resolve(ctx, pkg, c.Version)
	switch {
	case errors.Is(err, agentcli.ErrNoVersion):
		return nil, h.problem("config.version", "", err.Error())
	case err != nil:
		return nil, fmt.Errorf("%w: %w", harness.ErrNotInstalled, err)
	}
	return made, nil
}

func (h Harness) command(ctx context.Context, env map[string]string) (harness.Producer, error) {
	c := h.tester.Harness.Config
	files, err := h.files(ctx)
	if err != nil {
		return nil, err
	}
	command := harness.Command{Args: c.Command.Args(), TaskFile: c.TaskFile, Files: files}
	p := c.Provider
	if p == nil {
		return command, nil
	}
	if problems := h.keyProblems(); problems != nil {
		return nil, problems
	}
	command.Provider = &harness.CommandProvider{ProviderConfig: *p}
	command.Provider.Relay, err = harness.RelayTo(relay.Provider(p.API), env[p.Key], c)
	return command, err
}

// Env returns the values of harness.env. A value comes from the environment of this process, else from the env file's
// variables, else from harness.secrets. Commands of harness.secrets write their errors to stderr. A missing or empty value
// is an error: compiler.Problems, which quote no value.
func Env(ctx context.Context, t *testerfile.File, file map[string]string, stderr io.Writer) (map[string]string, error) {
	var problems compiler.Problems
	values := make(map[string]string, len(t.Harness.Env))
	for i, name := range t.Harness.Env {
		value, set := os.LookupEnv(name)
		if !set {
			value = file[name]
		}
		if source, ok := t.Harness.Secrets[name]; ok && value == "" && file[name] == "" {
			var err error
			if value, err = secret(ctx, source, stderr); err != nil {
				return nil, compiler.Problems{t.Problem("$.harness.secrets."+name, "", err.Error())}
			}
		}
		if values[name] = value; value == "" {
			path, message := fmt.Sprintf("$.harness.env[%d]", i), fmt.Sprintf("environment variable %q has no value", name)
			problems = append(problems, t.Problem(path, "set it, or give it in the env file", message))
		}
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return values, nil
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
