// Package build makes images from Dockerfiles without a build daemon: the commands of RUN run in
// sandboxes, and each step becomes a layer of an image in containerd, which later builds that
// begin with the same steps use again.
//
// It supports what most task images need: FROM (also several stages), RUN, COPY, ADD of local
// files and archives, ENV, ARG, WORKDIR, VOLUME, USER, SHELL, ONBUILD, HEALTHCHECK, LABEL, EXPOSE, CMD and
// ENTRYPOINT. Anything else that changes the image is an error that names its line.
package build

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"

	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/compiler/environment"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/runtime"
)

// Images are the images of the daemon.
type Images interface {
	// Resolve returns an image, which it may pull.
	Resolve(ctx context.Context, ref string) (runtime.Image, error)
	// Built returns the image with the name as; ok is false unless it was committed with the key.
	Built(ctx context.Context, as, key string) (img runtime.Image, ok bool, err error)
	// Commit makes an image from another.
	Commit(ctx context.Context, c runtime.Commit) (runtime.Image, error)
}

// A Builder builds images. All fields but Isolation are required.
type Builder struct {
	Engine harness.Engine
	Images Images
	Limits runtime.Limits // of each command; LayerBytes also bounds what a step copies
	Wall   time.Duration  // of each command
	Egress harness.Egress // of commands; the zero value is none

	Isolation    runtime.Isolation // of commands, the least
	Capabilities []string          // of commands; see runtime.Config
	Output       io.Writer         // receives the steps and what the commands print
	Temp         string            // a directory for one layer at a time
}

// errUnsupported means that a Dockerfile has an instruction that this package does not support.
var errUnsupported = errors.New("not supported: build the image with another program, and import it (sbench image import)")

// A Fault is an error of the Dockerfile or of the files that it copies.
type Fault struct{ error }

// Unwrap returns the error.
func (f Fault) Unwrap() error { return f.error }

// StepName begins the names of the images of steps, which end with a part of their key.
const StepName = "sbench.local/build-step:"

// Build builds the Dockerfile file, a path relative to the directory dir, and names the image as. The
// Dockerfile may copy the files in dir. Errors name the line of the Dockerfile.
func (b Builder) Build(ctx context.Context, dir, file, as string) (runtime.Image, error) {
	root, err := openContext(dir, file)
	if err != nil {
		return runtime.Image{}, err
	}
	defer func() { _ = root.Close() }()
	f, err := open(root.Root, file) // a link out of the directory leads to a file of the operator's
	if err != nil {
		return runtime.Image{}, err
	}
	defer func() { _ = f.Close() }()
	parsed, err := parser.Parse(f)
	if err != nil {
		return runtime.Image{}, Fault{fmt.Errorf("%s: %w", f.Name(), err)}
	}
	stages, args, err := instructions.Parse(parsed.AST, nil)
	if err != nil {
		return runtime.Image{}, Fault{fmt.Errorf("%s: %w", f.Name(), err)}
	}
	r := recipe{Builder: b, file: f.Name(), context: root, lex: shell.NewLex(parsed.EscapeToken), global: map[string]string{}, stages: map[string]*stage{}}
	if err := r.declare(args); err != nil {
		return runtime.Image{}, err
	}
	var last *stage
	for i, s := range stages {
		if last, err = r.stage(ctx, s); err != nil {
			return runtime.Image{}, err
		}
		r.stages[fmt.Sprint(i)], r.stages[strings.ToLower(s.Name)] = last, last
	}
	if last == nil {
		return runtime.Image{}, Fault{fmt.Errorf("%s: no FROM", f.Name())}
	}
	return b.Images.Commit(ctx, runtime.Commit{Base: last.image.Ref, As: as, Key: last.key, Change: last.configure})
}

// Setup returns the image img as changed by shell commands, which run as root. Each is a step, like
// a RUN.
func (b Builder) Setup(ctx context.Context, img runtime.Image, commands []string) (runtime.Image, error) {
	s := &stage{recipe: &recipe{Builder: b}, image: img, key: digest("base", img.Digest), user: "0", workdir: img.Workdir}
	for _, c := range commands {
		_, _ = fmt.Fprintf(b.Output, "setup: %s\n", c)
		if err := s.command(ctx, c, []string{"/bin/sh", "-c", c}, nil, mounts{}); err != nil {
			return runtime.Image{}, fmt.Errorf("%q: %w", c, err)
		}
	}
	return s.image, nil
}

type recipe struct {
	Builder
	file    string
	context tree
	lex     *shell.Lex
	global  map[string]string // arguments before the first FROM
	stages  map[string]*stage // by number and by name
	words   int               // bytes of all words after their expansion
}

// maxWords bounds the words of a Dockerfile after their expansion, in bytes: each line can double a variable.
const maxWords = 64 << 20

// replacing matches a variable in which a pattern is replaced, which no sum of lengths bounds.
var replacing = regexp.MustCompile(`\$\{\w+/`)

// expand puts the values of variables into a word of the Dockerfile.
func (r *recipe) expand(lex *shell.Lex, word string, env []string) (string, error) {
	longest := 0
	for _, e := range env {
		longest = max(longest, len(e))
	}
	switch {
	case replacing.MatchString(word):
		return "", fmt.Errorf("the replacement in %q is %w", word, errUnsupported)
	case r.words+len(word)+strings.Count(word, "$")*longest > maxWords:
		return "", fmt.Errorf("its words may have more than %d bytes with the values of their variables", maxWords)
	}
	text, _, err := lex.ProcessWord(word, shell.EnvsFromSlice(env))
	r.words += len(text)
	return text, err
}

// declare sets the arguments before the first FROM: the platform's, which every Dockerfile has, and the Dockerfile's own. A
// value may name those before it.
func (r *recipe) declare(args []instructions.ArgCommand) error {
	for _, side := range []string{"BUILD", "TARGET"} {
		r.global[side+"PLATFORM"], r.global[side+"OS"], r.global[side+"ARCH"] = "linux/"+goruntime.GOARCH, "linux", goruntime.GOARCH
	}
	for _, a := range args {
		for _, pair := range a.Args {
			if pair.Value == nil {
				continue
			}
			value, err := r.expand(r.lex, *pair.Value, environment.Environ(r.global))
			if err != nil {
				return Fault{fmt.Errorf("%s: ARG %s: %w", r.file, pair.Key, err)}
			}
			r.global[pair.Key] = value
		}
	}
	return nil
}

// stage is a stage of the build, up to some instruction.
type stage struct {
	*recipe
	image         runtime.Image     // with all layers so far
	key           string            // what the image was made from, as a digest
	env           []string          // NAME=value, set by the stage
	args          map[string]string // its arguments
	user, workdir string
	shell         []string
	triggers      []string // its ONBUILD
	commanded     bool     // it has a CMD
	changes       []func(*dockerspec.DockerOCIImageConfig)
	line          int
}

// configure makes the stage's changes to an image's configuration.
func (s *stage) configure(c *dockerspec.DockerOCIImageConfig) {
	for _, change := range s.changes {
		change(c)
	}
}

func (s *stage) change(f func(*dockerspec.DockerOCIImageConfig)) { s.changes = append(s.changes, f) }

func (r *recipe) stage(ctx context.Context, st instructions.Stage) (*stage, error) {
	s := &stage{recipe: r, args: map[string]string{}, shell: []string{"/bin/sh", "-c"}}
	if len(st.Location) > 0 {
		s.line = st.Location[0].Start.Line
	}
	base, err := r.base(st)
	if err == nil {
		err = s.from(ctx, base)
	}
	for _, c := range st.Commands {
		if err != nil {
			break
		}
		if at := c.Location(); len(at) > 0 {
			s.line = at[0].Start.Line
		}
		_, _ = fmt.Fprintf(r.Output, "%s:%d: %s\n", r.file, s.line, c)
		err = s.do(ctx, c)
	}
	if err != nil {
		err = fmt.Errorf("%s:%d: %w", r.file, s.line, err)
	}
	if errors.Is(err, errUnsupported) {
		err = Fault{err}
	}
	return s, err
}

// base returns what a FROM names. It is a Fault if that is nothing, or for another platform than this machine's.
func (r *recipe) base(st instructions.Stage) (string, error) {
	env := environment.Environ(r.global)
	name, err := r.expand(r.lex, st.BaseName, env)
	platform, platformErr := r.expand(r.lex, st.Platform, env)
	if err = errors.Join(err, platformErr); err == nil && name == "" {
		err = fmt.Errorf("FROM %s names no image: give the ARG before it a value", st.BaseName)
	}
	if own := "linux/" + goruntime.GOARCH; err == nil && platform != "" && !strings.HasPrefix(platform+"/", own+"/") { // a variant may follow
		err = fmt.Errorf("FROM --platform=%s on %s is %w", platform, own, errUnsupported)
	}
	if err != nil {
		return "", Fault{err}
	}
	return name, nil
}

// from begins the stage with an image or an earlier stage, and carries out the ONBUILD of either.
func (s *stage) from(ctx context.Context, base string) (err error) {
	if earlier, ok := s.stages[strings.ToLower(base)]; ok {
		line := s.line
		*s = *earlier
		s.line, s.commanded, s.args, s.env, s.changes = line, false, maps.Clone(s.args), slices.Clone(s.env), slices.Clone(s.changes)
	} else if base == "scratch" {
		return s.step(ctx, digest("scratch"), "FROM scratch", func(to *os.File) (layer.Report, error) {
			return layer.Write(ctx, to, runtime.Changes{}, layer.Budget{Bytes: 1, Entries: 1})
		})
	} else {
		if s.image, err = s.Images.Resolve(ctx, base); err != nil {
			return err
		}
		s.key = digest("base", s.image.Digest)
		s.user, s.workdir, s.shell, s.triggers = s.image.User, s.image.Workdir, s.image.Shell, s.image.OnBuild
	}
	triggers := s.triggers
	if s.triggers = nil; len(triggers) > 0 {
		s.change(func(c *dockerspec.DockerOCIImageConfig) { c.OnBuild = nil })
	}
	for _, text := range triggers {
		_, _ = fmt.Fprintf(s.Output, "%s:%d: ONBUILD %s\n", s.file, s.line, text)
		parsed, err := parser.Parse(strings.NewReader(text))
		if err != nil {
			return Fault{err}
		}
		c, err := instructions.ParseCommand(parsed.AST.Children[0])
		if err != nil {
			return Fault{err}
		}
		if err := s.do(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(p), p) // a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil))
}

// substitute puts the values of variables into an instruction.
func (s *stage) substitute(c instructions.Command) (err error) {
	with := func(lex *shell.Lex) instructions.SingleWordExpander {
		return func(word string) (string, error) {
			return s.expand(lex, word, slices.Concat(s.image.Env, s.variables()))
		}
	}
	if e, ok := c.(instructions.SupportsSingleWordExpansion); ok {
		err = e.Expand(with(s.lex))
	}
	if e, ok := c.(instructions.SupportsSingleWordExpansionRaw); ok && err == nil { // the text of a here-document keeps its quotes
		text := shell.NewLex('\\')
		text.SkipProcessQuotes = true
		err = e.ExpandRaw(with(text))
	}
	return err
}

func (s *stage) do(ctx context.Context, c instructions.Command) error {
	if err := s.substitute(c); err != nil {
		return Fault{err}
	}
	switch c := c.(type) {
	case *instructions.RunCommand:
		return s.run(ctx, c)
	case *instructions.CopyCommand:
		return s.copy(ctx, copying{SourcesAndDest: c.SourcesAndDest, from: c.From, chown: c.Chown, chmod: c.Chmod, parents: c.Parents, exclude: c.ExcludePatterns, text: c.String()})
	case *instructions.AddCommand:
		for _, source := range c.SourcePaths {
			if strings.Contains(source, "://") || strings.HasPrefix(source, "git@") {
				return Fault{fmt.Errorf("ADD of %s, which is not a local file, is not supported: fetch it in a RUN, whose hosts --allow names", source)}
			}
		}
		return s.copy(ctx, copying{SourcesAndDest: c.SourcesAndDest, chown: c.Chown, chmod: c.Chmod, unpack: c.Unpack == nil || *c.Unpack, exclude: c.ExcludePatterns, text: c.String()})
	case *instructions.EnvCommand:
		for _, pair := range c.Env {
			s.set(pair.Key, pair.Value)
		}
	case *instructions.ArgCommand:
		for _, pair := range c.Args {
			if value, ok := s.global[pair.Key]; pair.Value != nil {
				s.args[pair.Key] = *pair.Value
			} else if ok {
				s.args[pair.Key] = value
			}
		}
	case *instructions.WorkdirCommand:
		dir := path.Clean(c.Path)
		if !path.IsAbs(dir) {
			dir = path.Join("/", s.workdir, dir)
		}
		s.workdir = dir
		s.change(func(c *dockerspec.DockerOCIImageConfig) { c.WorkingDir = dir })
		return s.directories(ctx, "workdir", s.user, []string{dir})
	case *instructions.VolumeCommand: // a container of the image has the directories
		return s.directories(ctx, "volume", "", c.Volumes)
	case *instructions.UserCommand:
		s.user = c.User
		s.change(func(config *dockerspec.DockerOCIImageConfig) { config.User = c.User })
	case *instructions.ShellCommand:
		s.shell = c.Shell
		s.change(func(config *dockerspec.DockerOCIImageConfig) { config.Shell = c.Shell })
	default:
		return s.describe(c)
	}
	return nil
}

// directories is the step of an instruction that makes directories for a user, unless they are there.
func (s *stage) directories(ctx context.Context, instruction, user string, dirs []string) error {
	key := digest(slices.Concat([]string{instruction, s.key, user}, dirs)...)
	return s.layered(ctx, key, strings.ToUpper(instruction)+" "+strings.Join(dirs, " "), func(u *upper) error {
		err := u.setOwner(user, "")
		for _, dir := range dirs {
			err = cmp.Or(err, u.makeParents(path.Join(u.resolve(path.Join("/", dir)), "x")))
		}
		return err
	})
}

// variables returns the arguments and the ENV of the stage, which hide variables of the image. The last one of a name counts.
func (s *stage) variables() []string { return append(environment.Environ(s.args), s.env...) }

func (s *stage) set(name, value string) {
	entry := name + "=" + value
	without := func(env []string) []string {
		return slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, name+"=") })
	}
	s.env = append(without(s.env), entry)
	s.change(func(c *dockerspec.DockerOCIImageConfig) { c.Env = append(without(c.Env), entry) })
}

// describe carries out instructions that change no file and do not affect later steps.
func (s *stage) describe(c instructions.Command) error {
	switch c := c.(type) {
	case *instructions.CmdCommand:
		args := s.arguments(c.ShellDependantCmdLine)
		s.commanded = true
		s.change(func(config *dockerspec.DockerOCIImageConfig) { config.Cmd = args })
	case *instructions.EntrypointCommand:
		args := s.arguments(c.ShellDependantCmdLine)
		s.change(func(config *dockerspec.DockerOCIImageConfig) { config.Entrypoint = args })
		if !s.commanded { // the base image's CMD is for its own entry point
			s.change(func(config *dockerspec.DockerOCIImageConfig) { config.Cmd = nil })
		}
	case *instructions.LabelCommand:
		s.change(func(config *dockerspec.DockerOCIImageConfig) {
			labels := map[string]string{}
			maps.Copy(labels, config.Labels)
			for _, pair := range c.Labels {
				labels[pair.Key] = pair.Value
			}
			config.Labels = labels
		})
	case *instructions.HealthCheckCommand:
		s.change(func(config *dockerspec.DockerOCIImageConfig) { config.Healthcheck = c.Health })
	case *instructions.OnbuildCommand:
		s.triggers = append(slices.Clone(s.triggers), c.Expression)
		all := s.triggers
		s.change(func(config *dockerspec.DockerOCIImageConfig) { config.OnBuild = all })
	case *instructions.ExposeCommand, *instructions.StopSignalCommand, *instructions.MaintainerCommand:
		// They have no effect in a sandbox.
	default:
		return fmt.Errorf("%s is %w", c.Name(), errUnsupported)
	}
	return nil
}

func (s *stage) run(ctx context.Context, c *instructions.RunCommand) (err error) {
	for _, flag := range c.FlagsUsed {
		if flag != "mount" {
			return fmt.Errorf("RUN --%s is %w", flag, errUnsupported)
		}
	}
	// A cache is not mounted: what the command writes to it stays in the image, for the commands after it.
	all := slices.DeleteFunc(instructions.GetMounts(c), func(m *instructions.Mount) bool { return m.Type == instructions.MountTypeCache })
	var mounted mounts
	if len(all) > 0 {
		root, closeVolume, volumeErr := s.volume(ctx)
		if volumeErr != nil {
			return volumeErr
		}
		defer func() { err = errors.Join(err, closeVolume()) }()
		if mounted, err = s.mounts(ctx, all, root); err != nil {
			return err
		}
	}
	return s.command(ctx, c.String(), s.arguments(c.ShellDependantCmdLine), s.variables(), mounted)
}

// arguments returns a line's own arguments or, if it is written for a shell, the shell's.
func (s *stage) arguments(c instructions.ShellDependantCmdLine) []string {
	if !c.PrependShell {
		return c.CmdLine
	}
	return append(slices.Clone(s.shell), lineOf(c))
}

// mounts are what a RUN mounts.
type mounts struct {
	all []runtime.Mount
	key string // the same for the same files at the same places
}

// mounts copies what a RUN mounts to the directory root. What the command writes there is lost.
func (s *stage) mounts(ctx context.Context, all []*instructions.Mount, root *os.Root) (made mounts, err error) {
	for i, m := range all {
		to, dest := strconv.Itoa(i), m.Target
		if !path.IsAbs(dest) {
			dest = path.Join("/", s.workdir, dest)
		}
		content := ""
		switch m.Type {
		case instructions.MountTypeTmpfs:
			err = root.Mkdir(to, 0o755)
		case instructions.MountTypeBind:
			content, err = s.bind(ctx, m, &upper{to: root, image: root}, to)
		default:
			err = fmt.Errorf("RUN --mount=type=%s is %w", m.Type, errUnsupported)
		}
		if err != nil {
			return made, err
		}
		info, err := root.Lstat(to)
		if err != nil {
			return made, err
		}
		made.all = append(made.all, runtime.Mount{Source: filepath.Join(root.Name(), to), Dest: dest, Copy: info.IsDir() && !m.ReadOnly, Chown: true})
		made.key = digest(made.key, dest, content, strconv.FormatBool(m.ReadOnly))
	}
	return made, nil
}

// bind copies what a RUN mounts of the build context, an earlier stage or an image, and returns a digest of it.
func (s *stage) bind(ctx context.Context, m *instructions.Mount, u *upper, to string) (content string, err error) {
	source, closeSource, err := s.source(ctx, m.From)
	if err != nil {
		return "", err
	}
	defer closeSource()
	name := path.Join(".", path.Clean("/" + m.Source)[1:])
	if info, err := source.Lstat(name); err != nil || !info.IsDir() && !info.Mode().IsRegular() {
		return "", Fault{errors.Join(err, fmt.Errorf("RUN --mount=type=bind: %q is no file or directory of %s", name, cmp.Or(m.From, "the build context")))}
	}
	if content, err = digestFiles(ctx, source, []string{name}); err == nil {
		err = u.copyTree(ctx, source, name, to)
	}
	return content, err
}

// lineOf returns the line that a shell gets. A here-document that is the whole of it is the script itself, which no command reads.
func lineOf(c instructions.ShellDependantCmdLine) string {
	line := strings.Join(c.CmdLine, " ")
	if len(c.Files) == 0 || parser.MustParseHeredoc(line) == nil {
		for _, f := range c.Files { // the shell reads them
			line += "\n" + f.Data + f.Name
		}
		return line
	}
	text := c.Files[0].Data
	if c.Files[0].Chomp {
		text = parser.ChompHeredocContent(text)
	}
	if !strings.HasPrefix(text, "#!") {
		return text
	}
	const end = "SBENCH_END_OF_SCRIPT"
	return `f=$(mktemp) && cat > "$f" <<'` + end + "'\n" + text + end + "\n" + `chmod +x "$f" && "$f"; status=$?; rm -f "$f"; exit $status`
}

// command adds what a command changes.
func (s *stage) command(ctx context.Context, name string, args, env []string, mounted mounts) error {
	key := digest(slices.Concat([]string{"run", s.key, s.user, s.workdir, strings.Join(env, "\x00"), strings.Join(s.Capabilities, " "), mounted.key}, args)...)
	return s.step(ctx, key, name, func(to *os.File) (layer.Report, error) {
		return harness.Preparation{
			Name: "build", Image: s.image, Args: args, Env: env, Dir: s.workdir, User: s.user, Isolation: s.Isolation, Capabilities: s.Capabilities, Limits: s.Limits,
			Wall: s.Wall, Egress: s.Egress, Output: s.Output, Mounts: mounted.all,
		}.Run(ctx, s.Engine, to)
	})
}

// step adds the layer that fill writes, unless an earlier build has made the same step.
func (s *stage) step(ctx context.Context, key, name string, fill func(to *os.File) (layer.Report, error)) error {
	as := StepName + key[:40]
	img, ok, err := s.Images.Built(ctx, as, key)
	if err != nil {
		return err
	}
	if ok {
		_, _ = fmt.Fprintln(s.Output, "  as before")
		s.image, s.key = img, key
		return nil
	}
	f, err := os.CreateTemp(s.Temp, "layer-")
	if err != nil {
		return err
	}
	report, err := fill(f)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err == nil {
		l := runtime.Layer{Digest: report.Digest, DiffID: report.DiffID, Size: report.Size, Content: f, CreatedBy: name}
		img, err = s.Images.Commit(ctx, runtime.Commit{Base: s.image.Ref, As: as, Key: key, Layers: []runtime.Layer{l}})
	}
	if err = errors.Join(err, f.Close(), os.Remove(f.Name())); err == nil {
		s.image, s.key = img, key
	}
	return err
}
