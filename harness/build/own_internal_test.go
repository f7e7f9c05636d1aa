package build

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
)

// TestSetOwner: --chown takes names and numbers, as Docker does.
func TestSetOwner(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"passwd": "root:x:0:0:r:/root:/bin/sh\nada:x:7:8:a:/home/ada:/bin/sh\n", "group": "root:x:0:\nstaff:x:50:ada\n"} {
		must.Do(t, errors.Join(os.MkdirAll(filepath.Join(dir, "etc"), 0o755), os.WriteFile(filepath.Join(dir, "etc", name), []byte(text), 0o644)))
	}
	image := must.OpenRoot(t, dir)
	for _, tt := range []struct {
		chown    string
		uid, gid int
		fault    string
	}{
		{"", 0, 0, ""}, {"ada", 7, 8, ""}, {"ada:", 7, 8, ""}, {"ada:staff", 7, 50, ""}, {"ada:9", 7, 9, ""}, {":staff", 0, 50, ""}, {"7", 7, 7, ""},
		{"1000", 1000, 1000, ""}, {"1000:staff", 1000, 50, ""}, {"bob", 0, 0, `"bob" is not in the image's /etc/passwd`}, {"ada:users", 0, 0, `"users" is not in the image's /etc/group`},
	} {
		u := &upper{image: image}
		err := u.setOwner(tt.chown, "")
		if tt.fault != "" {
			if fault := (Fault{}); !errors.As(err, &fault) || !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("%q: %v", tt.chown, err)
			}
		} else if err != nil || u.uid != tt.uid || u.gid != tt.gid {
			t.Errorf("%q: %d:%d, %v", tt.chown, u.uid, u.gid, err)
		}
	}
}

// TestUnpack: an archive is unpacked over the image as Docker does it, and no entry leaves the directory.
func TestUnpack(t *testing.T) {
	image := must.OpenRoot(t, t.TempDir())
	must.Do(t, errors.Join(image.Mkdir("usr", 0o755), image.Mkdir("usr/lib", 0o755), image.Symlink("usr/lib", "lib"), image.Mkdir("etc", 0o755)))
	mine := tar.Header{Uid: os.Getuid(), Gid: os.Getgid(), Mode: 0o640, Typeflag: tar.TypeReg, ModTime: time.Unix(1e9, 0)}
	entry := func(name string, kind byte, link string) *tar.Header {
		h := mine
		h.Name, h.Typeflag, h.Linkname = name, kind, link
		return &h
	}
	of := func(entries ...*tar.Header) string {
		var out bytes.Buffer
		archive := tar.NewWriter(&out)
		for _, h := range entries {
			must.Do(t, archive.WriteHeader(h))
		}
		must.Do(t, archive.Close())
		return out.String()
	}
	plain := of(entry("d", tar.TypeDir, ""), entry("d/a", tar.TypeReg, ""), entry("./d/b", tar.TypeSymlink, "a"), entry("/d/c", tar.TypeLink, "d/a"), entry("d/a", tar.TypeReg, ""))
	zst, err := zstd.NewWriter(nil)
	must.Do(t, err)
	var window strings.Builder // for which a reader takes as much memory
	big, err := zstd.NewWriter(&window, zstd.WithWindowSize(256<<20))
	must.Do(t, err)
	_, err = big.Write([]byte(plain))
	must.Do(t, errors.Join(err, big.Flush(), big.Close()))
	for _, tt := range []struct{ name, text, want, fault string }{
		{"plain", plain, "opt opt/d opt/d/a opt/d/b opt/d/c", ""},
		{"bzip2", "BZh91AY&SY", "", ""},
		{"gzip of no archive", "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x01\x00\x00\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00", "", ""},
		{"text", "text\n", "", ""},
		{"zeros", strings.Repeat("\x00", 1024), "", ""},
		{"xz", "\xfd7zXZ\x00", "", "compress it with gzip"},
		{"zstd", string(zst.EncodeAll([]byte(plain), nil)), "opt opt/d opt/d/a opt/d/b opt/d/c", ""},
		{"zstd with a big window", window.String(), "", ""},
		{"zstd of no archive", "\x28\xb5\x2f\xfd\x00", "", ""},
		{"above", of(entry("../../etc/x", tar.TypeReg, "")), "opt opt/etc opt/etc/x", ""},
		{"through its own link", of(entry("up", tar.TypeSymlink, "../etc"), entry("up/x", tar.TypeReg, "")), "etc etc/x opt opt/up", ""},
		{"out of the image", of(entry("up", tar.TypeSymlink, "../../../../.."), entry("up/x", tar.TypeReg, "")), "opt opt/up x", ""},
		{"a pipe", of(entry("p", tar.TypeFifo, "")), "opt", "p is no file, directory or link"},
		{"cut", plain[:len(plain)-1200], "opt opt/d opt/d/a opt/d/b opt/d/c", "unexpected EOF"},
	} {
		dir := t.TempDir()
		source, u := tree{Root: must.OpenRoot(t, dir)}, &upper{to: must.OpenRoot(t, t.TempDir()), image: image}
		must.Do(t, os.WriteFile(filepath.Join(dir, "x"), []byte(tt.text), 0o600))
		unpacked, err := u.unpack(t.Context(), source, "x", "opt", false)
		var found []string
		must.Do(t, fs.WalkDir(u.to.FS(), ".", func(p string, _ fs.DirEntry, err error) error {
			found = append(found, p)
			return err
		}))
		if got := strings.Join(found[1:], " "); got != tt.want || unpacked != (tt.want != "") {
			t.Errorf("%s: unpacked %v: %q", tt.name, unpacked, got)
		}
		if fault := (Fault{}); tt.fault == "" && err != nil || tt.fault != "" && (!errors.As(err, &fault) || !strings.Contains(err.Error(), tt.fault)) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if info, err := u.to.Lstat("opt/d/a"); err == nil && (info.Mode() != 0o640 || !info.ModTime().Equal(mine.ModTime)) {
			t.Errorf("%s: %v %v", tt.name, info.Mode(), info.ModTime())
		}
	}
	u := &upper{to: must.OpenRoot(t, t.TempDir()), image: image}
	dir := t.TempDir()
	must.Do(t, errors.Join(os.WriteFile(filepath.Join(dir, "x"), []byte(of(entry("lib/f", tar.TypeReg, ""))), 0o600), os.WriteFile(filepath.Join(dir, "cut"), []byte(plain[:len(plain)-1200]), 0o600)))
	source := tree{Root: must.OpenRoot(t, dir)}
	_, err = u.unpack(t.Context(), source, "x", ".", false)
	must.Report(t, err)
	if err := (copying{unpack: true}).fill(t.Context(), u, source, []string{"cut"}, "/opt/"); !errors.As(err, new(Fault)) {
		t.Errorf("ADD of an archive that is cut: %v", err)
	}
	_, err = u.to.Lstat("usr/lib/f")
	must.Report(t, err) // a link of the image
}

// TestHereDocument: a here-document that is the whole of a RUN is its script, however its name is written.
func TestHereDocument(t *testing.T) {
	for name, tt := range map[string]struct{ dockerfile, want string }{
		"plain":         {"RUN <<EOF\na\nEOF\n", "a\n"},
		"quoted":        {"RUN <<'EOF'\na\nEOF\n", "a\n"},
		"double quotes": {"RUN <<\"EOF\"\na\nEOF\n", "a\n"},
		"tabs":          {"RUN <<-'EOF'\n\ta\n\tEOF\n", "a\n"},
		"of a command":  {"RUN cat <<-'EOF' > b\n\ta\n\tEOF\n", "cat <<-'EOF' > b\n\ta\nEOF"},
	} {
		parsed, err := parser.Parse(strings.NewReader("FROM x\n" + tt.dockerfile))
		must.Do(t, err)
		stages, _, err := instructions.Parse(parsed.AST, nil)
		must.Do(t, err)
		if got := lineOf(stages[0].Commands[0].(*instructions.RunCommand).ShellDependantCmdLine); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestParents: new directories get the owner and, unless they are only above what is copied, the mode of --chmod. A
// directory of the image keeps its own.
func TestParents(t *testing.T) {
	image := must.OpenRoot(t, t.TempDir())
	must.Do(t, image.Mkdir("home", 0o700))
	u := &upper{to: must.OpenRoot(t, t.TempDir()), image: image, uid: os.Getuid(), gid: os.Getgid(), mode: 0o777}
	own := u.uid
	if own == 0 { // nobody else may give files away
		u.uid, u.gid = 7, 8
	}
	must.Do(t, errors.Join(u.write("home/a/b/f", strings.NewReader("x"), 0o600), u.makeDirectory("home/a/d", 0o700), u.makeDirectory("home", 0o755)))
	for name, want := range map[string]struct {
		uid  int
		mode fs.FileMode
	}{"home": {own, 0o700}, "home/a": {u.uid, 0o755}, "home/a/b": {u.uid, 0o755}, "home/a/b/f": {u.uid, 0o777}, "home/a/d": {u.uid, 0o777}} {
		info, err := u.to.Lstat(name)
		must.Do(t, err)
		if uid := int(info.Sys().(*syscall.Stat_t).Uid); uid != want.uid || info.Mode().Perm() != want.mode {
			t.Errorf("%s: of %d, %v", name, uid, info.Mode())
		}
	}
}

// TestCommand: ENTRYPOINT removes a CMD of the base image or of an earlier stage, and keeps one of its own stage. An argument of
// the earlier stage is there, too.
func TestCommand(t *testing.T) {
	for text, want := range map[string]string{
		"ENTRYPOINT [\"e\"]\n":                               "e",
		"CMD [\"c\"]\nENTRYPOINT [\"e\"]\n":                  "e c",
		"CMD [\"c\"]\nFROM first\nENTRYPOINT [\"e\"]\n":      "e",
		"ENTRYPOINT [\"e\"]\nFROM first\nCMD [\"c\"]\n":      "e c",
		"ARG A=1\nFROM first\nENV B=$A\nCMD [\"c\"]\n":       "c B=1",
		"ARG A=1\nFROM first\nARG A=2\nFROM first\nENV B=$A": "base B=1",
	} {
		parsed, err := parser.Parse(strings.NewReader("FROM b AS first\n" + text))
		must.Do(t, err)
		stages, _, err := instructions.Parse(parsed.AST, nil)
		must.Do(t, err)
		r := &recipe{lex: shell.NewLex('\\'), stages: map[string]*stage{}}
		s := &stage{recipe: r, args: map[string]string{}}
		for i, st := range stages {
			if i > 0 {
				s = &stage{recipe: r}
				must.Do(t, s.from(t.Context(), st.BaseName))
			}
			for _, c := range st.Commands {
				must.Do(t, s.do(t.Context(), c))
			}
			if i == 0 {
				r.stages["first"] = s
			}
		}
		config := dockerspec.DockerOCIImageConfig{ImageConfig: ocispec.ImageConfig{Cmd: []string{"base"}}}
		s.configure(&config)
		if got := strings.Join(slices.Concat(config.Entrypoint, config.Cmd, config.Env), " "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestArguments: an argument before the first FROM may name another, and the platform's; in a stage, an argument hides a
// variable of the base image, and ENV hides both. The text of a here-document has their values, unless its name is quoted.
func TestArguments(t *testing.T) {
	parsed, err := parser.Parse(strings.NewReader("ARG A=1\nARG B=x$A-$TARGETOS\nFROM b\nARG B\nARG V=2\nENV C=$B-$V W=1\nARG W=2\nENV D=$W\n"))
	must.Do(t, err)
	stages, args, err := instructions.Parse(parsed.AST, nil)
	must.Do(t, err)
	r := &recipe{lex: shell.NewLex('\\'), global: map[string]string{}}
	must.Do(t, r.declare(args))
	s := &stage{recipe: r, args: map[string]string{}, image: runtime.Image{Env: []string{"V=1"}}}
	for _, c := range stages[0].Commands {
		must.Do(t, s.do(t.Context(), c))
	}
	must.Equal(t, "C=x1-linux-2 W=1 D=1", strings.Join(s.env, " "))
	for name, want := range map[string]string{"EOF": "it's \"x1-linux-2\" $C\n", "'EOF'": "it's \"$C\" \\$C\n"} {
		parsed, err := parser.Parse(strings.NewReader("FROM b\nCOPY <<" + name + " /f\nit's \"$C\" \\$C\nEOF\n"))
		must.Do(t, err)
		stages, _, err := instructions.Parse(parsed.AST, nil)
		must.Do(t, err)
		c := stages[0].Commands[0].(*instructions.CopyCommand)
		must.Do(t, s.substitute(c))
		if got := c.SourceContents[0].Data; got != want {
			t.Errorf("<<%s: %q, want %q", name, got, want)
		}
	}
	if err := s.do(t.Context(), &instructions.EnvCommand{Env: instructions.KeyValuePairs{{Key: "X", Value: "${Y:?is missing}"}}}); !errors.As(err, new(Fault)) {
		t.Errorf("a variable that has to be set: %v", err)
	}
	if _, err := r.stage(t.Context(), instructions.Stage{BaseName: "$NONE"}); !errors.As(err, new(Fault)) {
		t.Errorf("FROM without an image: %v", err)
	}
	if _, err := r.stage(t.Context(), instructions.Stage{BaseName: "b", Platform: "linux/s390x"}); !errors.As(err, new(Fault)) || !errors.Is(err, errUnsupported) {
		t.Errorf("FROM for another machine: %v", err)
	}
	if base, err := r.base(instructions.Stage{BaseName: "b", Platform: "$TARGETPLATFORM"}); base != "b" || err != nil {
		t.Errorf("FROM for this machine: %q, %v", base, err)
	}
	must.Is(t, s.do(t.Context(), &instructions.EnvCommand{Env: instructions.KeyValuePairs{{Key: "X", Value: "${W//1/$C}"}}}), errUnsupported) // a replacement
	for range 20 {
		err = s.do(t.Context(), &instructions.EnvCommand{Env: instructions.KeyValuePairs{{Key: "W", Value: "$W$W$W$W"}}})
	}
	if !errors.As(err, new(Fault)) || !strings.Contains(err.Error(), "more than 67108864 bytes") {
		t.Errorf("a variable that grows with each line: %v", err)
	}
}

// noVolumes is an engine without room for a volume.
type noVolumes struct{ harness.Engine }

func (noVolumes) NewVolume(context.Context, runtime.VolumeConfig) (runtime.Volume, error) {
	return nil, errors.New("no room")
}

// TestDigest: no content of a file has the digest of several files.
func TestDigest(t *testing.T) {
	digests := map[string]bool{}
	for _, files := range []map[string]string{{"d/a": "A", "d/b": "B"}, {"d/a": `A"d/b" -rw-r--r-- B`}, {"d/a": `A"d/b" -rw-r--r-- 1 B`}} {
		dir := t.TempDir()
		filetest.Write(t, dir, files)
		d, err := digestFiles(t.Context(), tree{Root: must.OpenRoot(t, dir)}, []string{"d"})
		must.Do(t, err)
		digests[d] = true
	}
	if len(digests) != 3 {
		t.Errorf("%d digests", len(digests))
	}
}

// TestRefused: what is not supported is refused by name, and a file that is ignored is not there, although others are not
// ignored.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, errors.Join(os.WriteFile(filepath.Join(dir, "x"), nil, 0o600), os.WriteFile(filepath.Join(dir, ".dockerignore"), []byte("*\n!src\n"), 0o600)))
	files, err := openContext(dir, "Dockerfile")
	must.Do(t, err)
	for line, want := range map[string]string{
		"RUN --network=none true":               "RUN --network is not supported",
		"RUN --mount=type=tmpfs,target=/x true": "no room", // what is mounted is in a volume, which is bounded
		"COPY --parents a/./x /y":               "COPY --parents of a/./x is not supported",
		"COPY x /y":                             "there is no x in the build context, or it is ignored",
	} {
		parsed, err := parser.Parse(strings.NewReader("FROM b\n" + line + "\n"))
		must.Do(t, err)
		stages, _, err := instructions.Parse(parsed.AST, nil)
		must.Do(t, err)
		s := &stage{recipe: &recipe{Builder: Builder{Engine: noVolumes{}}, context: files, lex: shell.NewLex('\\')}}
		if err := s.do(t.Context(), stages[0].Commands[0]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", line, err)
		}
	}
}
