// Package must does for tests what they are not about, and ends them if it fails.
package must

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Do ends the test if err is not nil.
func Do(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Report fails the test if err is not nil, and lets it go on.
func Report(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Error(err)
	}
}

// Equal fails the test if got is not want, and lets it go on.
func Equal[T any](tb testing.TB, want, got T, options ...cmp.Option) {
	tb.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		tb.Errorf("-want +got\n%s", diff)
	}
}

// Is fails the test if err is not target, and lets it go on.
func Is(tb testing.TB, err, target error) {
	tb.Helper()
	if !errors.Is(err, target) {
		tb.Errorf("error %v, want %v", err, target)
	}
}

// Tells fails the test if err is nil or does not contain all parts, and lets it go on.
func Tells(tb testing.TB, err error, parts ...string) {
	tb.Helper()
	if err == nil {
		tb.Errorf("no error, want one with %q", parts)
		return
	}
	Contains(tb, err.Error(), parts...)
}

// Contains fails the test if text does not contain all parts, and lets it go on.
func Contains(tb testing.TB, text string, parts ...string) {
	tb.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			tb.Errorf("no %q in\n%s", part, text)
		}
	}
}

// Read returns the content of a file.
func Read(tb testing.TB, name string) []byte {
	tb.Helper()
	content, err := os.ReadFile(name)
	Do(tb, err)
	return content
}

// Run runs a command, and returns all that it printed.
func Run(tb testing.TB, cmd *exec.Cmd) []byte {
	tb.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		tb.Fatalf("%v: %v: %s", cmd, err, out)
	}
	return out
}

// Await waits until a condition holds, which may take minutes on a busy machine. It polls, since nothing tells what other
// processes do.
func Await(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	for end := time.Now().Add(5 * time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("waited in vain for %s", what)
		}
	}
}

// KeyFile writes a key for signatures to a file, and returns its name.
func KeyFile(tb testing.TB) string {
	tb.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	Do(tb, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	Do(tb, err)
	name := filepath.Join(tb.TempDir(), "key.pem")
	Do(tb, os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	return name
}

// OpenFiles returns how many files this process has open.
func OpenFiles(tb testing.TB) int {
	tb.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	Do(tb, err)
	return len(entries)
}

// JSON returns a value as JSON.
func JSON(tb testing.TB, value any) []byte {
	tb.Helper()
	text, err := json.Marshal(value)
	Do(tb, err)
	return text
}

// Decode returns the value that a text has as JSON.
func Decode[T any](tb testing.TB, text []byte) (value T) {
	tb.Helper()
	Do(tb, json.Unmarshal(text, &value))
	return value
}

// OpenRoot opens a directory, and closes it with the test.
func OpenRoot(tb testing.TB, dir string) *os.Root {
	tb.Helper()
	root, err := os.OpenRoot(dir)
	Do(tb, err)
	tb.Cleanup(func() { _ = root.Close() })
	return root
}

// Glob returns the names that match a pattern.
func Glob(tb testing.TB, pattern string) []string {
	tb.Helper()
	names, err := filepath.Glob(pattern)
	Do(tb, err)
	return names
}

// Abs returns a path as an absolute one.
func Abs(tb testing.TB, path string) string {
	tb.Helper()
	path, err := filepath.Abs(path)
	Do(tb, err)
	return path
}
