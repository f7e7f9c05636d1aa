package split

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/securebench/sbench/compiler/securebench"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
)

// npy returns an array as NumPy writes it.
func npy(descr, shape string, data []byte) string {
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape)
	header += strings.Repeat(" ", 63-(10+len(header))%64) + "\n"
	return "\x93NUMPY\x01\x00" + string(binary.LittleEndian.AppendUint16(nil, uint16(len(header)))) + header + string(data)
}

func doubles(values ...float64) (data []byte) {
	for _, v := range values {
		data = binary.LittleEndian.AppendUint64(data, math.Float64bits(v))
	}
	return data
}

// TestLargeArtifact: a pack may allow a file that is too large for the parsers. Its digest is taken without reading it into memory.
func TestLargeArtifact(t *testing.T) {
	const size = 256 << 20
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "big"), nil, 0o644))
	must.Do(t, os.Truncate(filepath.Join(dir, "big"), size))
	c := capture{root: must.OpenRoot(t, dir)}
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	o, err := c.observe(t.Context(), "big", securebench.RegularFile, "securebench.opaque-bytes/v1", securebench.Limits{MaxBytes: size}, maxLine)
	goruntime.ReadMemStats(&after)
	const zeros = "sha256:a6d72ac7690f53be6ae46ba88506bd97302a093f7108472bd9efc3cefda06484"
	if err != nil || o.failed == nil || o.failed.Code != tooLarge || *o.size != size || *o.digest != zeros {
		t.Errorf("%+v, %v", o, err)
	}
	if most := uint64(10 * maxParsed); after.TotalAlloc-before.TotalAlloc > most {
		t.Errorf("it took %d bytes of memory, more than %d", after.TotalAlloc-before.TotalAlloc, most)
	}
}

// TestParsers: what each parser of files makes of a file, as JSON with sorted keys, or its code.
func TestParsers(t *testing.T) {
	// 1.5 as an extended float: the significand 1.1 in binary, and an exponent of 0.
	extended := append(binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint64(nil, 3<<62), 16383), make([]byte, 6)...)
	stats := func(dtype string, count int, statistics string) string {
		return fmt.Sprintf(`{"count":%d,"dtype":"%s","format":"npy","fortran_order":false,"shape":[%d],"statistics":{%s},"version":[1,0]}`, count, dtype, count, statistics)
	}
	const calendar = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nBEGIN:VEVENT\r\nDTSTART;TZID=Europe/Paris:2026\r\n 0101\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
	tests := []struct{ name, parser, content, want string }{
		{"bytes", "opaque-bytes/v1", "\x00\xff", `{"byte_count":2,"bytes_base64":"AP8=","sha256":"06eb7d6a69ee19e5fbdf749018d3d2abfa04bcbd1365db312eb86dc7169389b8"}`},
		{"text", "utf8-text/v1", "é\n", `"é\n"`},
		{"empty text", "utf8-text/v1", "", `""`},
		{"no text", "utf8-text/v1", "\xff", "invalid_utf8"},
		{"json", "strict-json/v1", `{"b":1.50,"a":[]}`, `{"a":[],"b":1.50}`},
		{"json twice a key", "strict-json/v1", `{"a":1,"a":2}`, "invalid_json"},
		{"json of more than a line", "strict-json/v1", "[1" + strings.Repeat(",1", 4<<20) + "]", "artifact_too_large"},
		{"json that is short without escapes and spaces", "strict-json/v1", `"` + strings.Repeat(`\u0061`, 1<<10) + `"` + strings.Repeat(" ", 3<<20), `"` + strings.Repeat("a", 1<<10) + `"`},
		{"text of more than a line", "utf8-text/v1", strings.Repeat("\x01", 400<<10), "artifact_too_large"},
		{"bytes of more than a line", "opaque-bytes/v1", strings.Repeat("x", 2<<20), "artifact_too_large"},
		{"csv of more than a line", "strict-csv/v1", "a\n" + strings.Repeat(strings.Repeat("x", 100)+"\n", 30_000), "artifact_too_large"},
		{"json with NaN", "strict-json/v1", `[NaN]`, "invalid_json"},
		{"json that nests too deep", "strict-json/v1", strings.Repeat("[", 1001) + strings.Repeat("]", 1001), "invalid_json"},
		{"json and more", "strict-json/v1", `1 2`, "invalid_json"},
		{"csv", "strict-csv/v1", "\ufeffa,b\r\n1,\"x,\"\"y\"\"\nz\"\n\n2,\n", `{"header":["a","b"],"rows":[["1","x,\"y\"\nz"],["2",""]]}`},
		{"csv with a quote inside", "strict-csv/v1", "a\nx\"y\n", `{"header":["a"],"rows":[["x\"y"]]}`},
		{"csv without an end of line", "strict-csv/v1", "a,b\n1,2", `{"header":["a","b"],"rows":[["1","2"]]}`},
		{"csv with a last empty field", "strict-csv/v1", "a,b\n1,", `{"header":["a","b"],"rows":[["1",""]]}`},
		{"csv with an empty string", "strict-csv/v1", "a\n\"\"\n", `{"header":["a"],"rows":[[""]]}`},
		{"csv with an open quote", "strict-csv/v1", "a\n\"x\n", "invalid_csv"},
		{"csv with text after a quote", "strict-csv/v1", "a\n\"x\"y\n", "invalid_csv"},
		{"csv of another width", "strict-csv/v1", "a,b\n1\n", "invalid_csv_shape"},
		{"csv with equal names", "strict-csv/v1", "a,a\n", "invalid_csv_header"},
		{"csv with NUL", "strict-csv/v1", "a\n\x00\n", "invalid_csv"},
		{"csv of nothing", "strict-csv/v1", "\n", "invalid_csv"},
		{"csv of many columns", "strict-csv/v1", "c0" + columns(256) + "\n", "csv_too_many_columns"},
		{"csv of empty lines", "strict-csv/v1", strings.Repeat("\n", 2_000_000), "csv_too_many_cells"},
		{"ics", "ics/v1", calendar, `{"events":[{"properties":[{"name":"DTSTART","parameters":{"TZID":"Europe/Paris"},"value":"20260101"}],"type":"VEVENT"}],"properties":[{"name":"VERSION","parameters":{},"value":"2.0"}]}`},
		{"ics with many folds", "ics/v1", "BEGIN:VCALENDAR\nX:" + strings.Repeat("\n x", 1<<20) + "\nEND:VEVENT\n", "invalid_ics"},
		{"ics with many lines", "ics/v1", "BEGIN:VCALENDAR\n" + strings.Repeat("X:\n", 100_000) + "END:VCALENDAR\n", "invalid_ics"},
		{"ics with many parameters", "ics/v1", "BEGIN:VCALENDAR\nX" + strings.Repeat("\n ;A=1", 1<<19) + ":\nEND:VCALENDAR\n", "artifact_too_large"},
		{"ics without an end", "ics/v1", "BEGIN:VCALENDAR\nBEGIN:VEVENT\nEND:VCALENDAR\n", "invalid_ics"},
		{"ics with a long line", "ics/v1", "BEGIN:VCALENDAR\nX:" + strings.Repeat("x", 8192) + "\nEND:VCALENDAR\n", "invalid_ics"},
		{"npy", "strict-npy-float-summary/v1", npy("<f8", "(2,)", doubles(0.25, 0.75)), stats("<f8", 2, `"all_finite":true,"all_positive":true,"maximum":0.75,"minimum":0.25,"sum":1.0,"sum_log":-1.6739764335716716,"sum_x_log_x":-0.5623351446188083`)},
		{"npy with NaN", "securebench.strict-npy-float-summary/v1", npy("<f8", "(2,)", doubles(math.NaN(), 1)), stats("<f8", 2, `"all_finite":false,"all_positive":false,"maximum":null,"minimum":null,"sum":null,"sum_log":null,"sum_x_log_x":null`)},
		{"npy of halves", "strict-npy-float-summary/v1", npy(">f2", "(2,)", []byte{0x38, 0, 0xc0, 0}), stats(">f2", 2, `"all_finite":true,"all_positive":false,"maximum":0.5,"minimum":-2.0,"sum":-1.5,"sum_log":null,"sum_x_log_x":null`)},
		{"npy of extended floats", "strict-npy-float-summary/v1", npy("<f16", "(1,)", extended), stats("<f16", 1, `"all_finite":true,"all_positive":true,"maximum":1.5,"minimum":1.5,"sum":1.5,"sum_log":0.4054651081081644,"sum_x_log_x":0.6081976621622466`)},
		{"npy of an extended zero", "strict-npy-float-summary/v1", npy("<f16", "(1,)", make([]byte, 16)), stats("<f16", 1, `"all_finite":true,"all_positive":false,"maximum":0.0,"minimum":0.0,"sum":0.0,"sum_log":null,"sum_x_log_x":null`)},
		{"npy of integers", "strict-npy-float-summary/v1", npy("<i8", "(1,)", make([]byte, 8)), "unsupported_npy_dtype"},
		{"npy that is cut", "strict-npy-float-summary/v1", npy("<f8", "(2,)", make([]byte, 8)), "invalid_npy"},
		{"npy of many", "strict-npy-float-summary/v1", npy("<f2", "(1000001,)", nil), "npy_too_many_elements"},
		{"npy of a shape whose product overflows", "strict-npy-float-summary/v1", npy("<f8", "(4, 4611686018427387904)", nil), "npy_too_many_elements"},
		{"npy with a program", "strict-npy-float-summary/v1", strings.Replace(npy("<f8", "(1,)", make([]byte, 8)), "False", "exit()", 1), "invalid_npy"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			must.Do(t, os.WriteFile(filepath.Join(dir, "f"), []byte(test.content), 0o644))
			compare(t, observeIn(t, dir, "f", securebench.RegularFile, test.parser, securebench.Limits{MaxBytes: 32 << 20}), test.want)
		})
	}
}

func columns(n int) (text string) {
	for i := range n {
		text += fmt.Sprintf(",c%d", i+1)
	}
	return text
}

func observeIn(t *testing.T, dir, name, kind, parser string, limits securebench.Limits) observation {
	t.Helper()
	root := must.OpenRoot(t, dir)
	c := capture{root: root, python: onHost}
	o, err := c.observe(t.Context(), name, kind, parser, limits, maxLine-maxEnvelope)
	must.Do(t, err)
	return o
}

// onHost is a python with the host's python3.
func onHost(ctx context.Context, parser string, files map[string][]byte) (json.RawMessage, error) {
	request, err := json.Marshal(object{"parser": parser, "files": files})
	if err != nil {
		return nil, err
	}
	out := runtime.NewCapture(maxLine, nil)
	cmd := exec.CommandContext(ctx, "python3", "-I", "-S", "-B", "-c", program)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), out, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	return valueOf(runtime.Exit{Reason: runtime.Exited, Stdout: out.Output()})
}

func compare(t *testing.T, o observation, want string) {
	t.Helper()
	got := string(o.value)
	if o.failed != nil {
		got = o.failed.Code
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: %s", o.status, diff)
	}
}

// TestTrees: what is observed of trees, which are never followed or executed.
func TestTrees(t *testing.T) {
	dir := t.TempDir()
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "t/sub"), 0o700), os.WriteFile(filepath.Join(dir, "t/run"), []byte("x"), 0o700), os.WriteFile(filepath.Join(dir, "t/sub/data"), nil, 0o600),
		os.WriteFile(filepath.Join(dir, "t/sub-x"), nil, 0o600), os.Symlink("sub/data", filepath.Join(dir, "t/link")), os.MkdirAll(filepath.Join(dir, "out"), 0o755), os.Symlink("/etc/passwd", filepath.Join(dir, "out/link")),
		os.MkdirAll(filepath.Join(dir, "links/p/q"), 0o755), os.Symlink("../..", filepath.Join(dir, "links/p/q/d")), os.Symlink("d/../t/run", filepath.Join(dir, "links/p/q/through")),
	} {
		must.Do(t, err)
	}
	must.Do(t, os.MkdirAll(filepath.Join(dir, "deep", strings.Repeat("d/", 200)), 0o755))
	const nodes = `{"nodes":[{"kind":"symlink","path":"link","target":"sub/data"},{"blob":"sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881","kind":"regular_file","mode":493,"path":"run","size":1},` +
		`{"kind":"directory","mode":493,"path":"sub"},{"blob":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","kind":"regular_file","mode":420,"path":"sub-x","size":0},{"blob":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","kind":"regular_file","mode":420,"path":"sub/data","size":0}]}`
	limits := securebench.Limits{MaxFiles: 5, MaxTotalBytes: 9}
	compare(t, observeIn(t, dir, "t", securebench.DirectoryTree, "tree-manifest/v1", limits), nodes)
	compare(t, observeIn(t, dir, "t", securebench.DirectoryTree, "tree-manifest/v1", securebench.Limits{MaxFiles: 4, MaxTotalBytes: 9}), "artifact_too_large")
	compare(t, observeIn(t, dir, "t", securebench.DirectoryTree, "tree-manifest/v1", securebench.Limits{MaxFiles: 5, MaxTotalBytes: 8}), "artifact_too_large")
	compare(t, observeIn(t, dir, "deep", securebench.DirectoryTree, "tree-manifest/v1", limits), "artifact_too_large")
	compare(t, observeIn(t, dir, "out", securebench.DirectoryTree, "tree-manifest/v1", limits), "artifact_unsafe")
	compare(t, observeIn(t, dir, "links", securebench.DirectoryTree, "tree-manifest/v1", limits), "artifact_unsafe")
	compare(t, observeIn(t, dir, "t/link", securebench.RegularFile, "utf8-text/v1", limits), "artifact_missing")
	compare(t, observeIn(t, dir, "none", securebench.DirectoryTree, "tree-manifest/v1", limits), "artifact_missing")
}

// TestGitRepository: loose and packed objects are the same that git shows.
func TestGitRepository(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("this host has no git")
	}
	dir := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(git, append([]string{"-C", filepath.Join(dir, "r"), "-c", "user.name=n", "-c", "user.email=e"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
		out := must.Run(t, cmd)
		return string(out)
	}
	must.Do(t, os.Mkdir(filepath.Join(dir, "r"), 0o755))
	run("init", "-q")
	long := strings.Repeat("a line that is in both\n", 200)
	for i, text := range []string{long, long + "more\n"} {
		must.Do(t, os.WriteFile(filepath.Join(dir, "r/f"), []byte(text), 0o644))
		run("add", "f")
		run("commit", "-qm", fmt.Sprint(i))
	}
	run("tag", "-a", "-m", "t", "v1")
	limits := securebench.Limits{MaxFiles: 1000, MaxTotalBytes: 1 << 20}
	shown := func() string {
		return string(observeIn(t, dir, "r", securebench.DirectoryTree, "git-repository/v1", limits).value)
	}
	loose := shown()
	var value struct {
		Objects []struct {
			Content, Kind, OID string
			Reachable          bool
		}
	}
	if err := json.Unmarshal([]byte(loose), &value); err != nil || len(value.Objects) != 7 {
		t.Fatalf("%d objects: %v", len(value.Objects), err)
	}
	for _, o := range value.Objects {
		if want := run("cat-file", "-p", o.OID); o.Content != want || !o.Reachable {
			t.Errorf("%s %s: got %q, want %q, reachable %v", o.Kind, o.OID, o.Content, want, o.Reachable)
		}
	}
	run("gc", "-q", "--aggressive")
	must.Equal(t, loose, shown())
	must.Do(t, os.WriteFile(filepath.Join(dir, "r/.git/objects/info/alternates"), []byte("/"), 0o644))
	compare(t, observeIn(t, dir, "r", securebench.DirectoryTree, "git-repository/v1", limits), "unsafe_git_repository")
}

// TestInflateIsBounded: an object that unpacks to more than its bound is refused early.
func TestInflateIsBounded(t *testing.T) {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	if _, err := w.Write(make([]byte, 64<<20)); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string][]byte{"HEAD": nil, "objects/00/" + strings.Repeat("0", 38): b.Bytes()} {
		at := filepath.Join(dir, "r/.git", name)
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, text, 0o644)))
	}
	compare(t, observeIn(t, dir, "r", securebench.DirectoryTree, "git-repository/v1", securebench.Limits{MaxFiles: 10, MaxTotalBytes: 1 << 20}), "git_object_too_large")
}
