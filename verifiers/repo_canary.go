package verifiers

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"math/big"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/patch"
	"github.com/securebench/sbench/runtime"
)

// A canary is a test that nobody knows. pytest runs it with the task's tests: once
// it is not there, and once it is and fails. If the second run passes, something
// in the repository answers for the tests.
//
// Candidate code runs in the tests' process, and what tells the runs apart it
// could use to behave in one of them. So the canary stands at the end of one of the
// hidden test files, under a name as these have, and it is a hash that decides
// whether it is a test. Where the command names single tests, or there is no such
// file, it is in a file of its own that PYTEST_ADDOPTS names. Code that looks for it
// in either place finds it: that is as far as a canary can go.
type canary struct {
	host   string // path of the file
	inside string // where the tests' sandbox has it
	// named: it is a file of its own, which pytest has to be told of.
	named bool
}

// A unittest.TestCase is collected whatever the repository's pytest
// configuration says of names.
const canaryText = `

import hashlib as _hashlib
import unittest as _unittest

_value = %q.encode()
for _round in range(%d):
    _value = _hashlib.sha256(_value).digest()

if _value.hex() == %q:
    class Test%s(_unittest.TestCase):
        def test_%s(self):
            self.assertEqual(_value, b"")
`

// newCanary writes the file; one that sings has a test that fails. prepared is the
// repository as the tests will find it.
func (c *repoCheck) newCanary(prepared runtime.Sandbox, sings bool) (*canary, error) {
	words := testWords(c.eval.TestPatch)
	name := fmt.Sprintf("%s_%s", words[below(len(words))], words[below(len(words))])
	seed, rounds := randomName(), 1000+below(1000)
	value := []byte(seed)
	for range rounds {
		sum := sha256.Sum256(value)
		value = sum[:]
	}
	if !sings {
		value[below(len(value))]++
	}
	text := fmt.Sprintf(canaryText, seed, rounds, fmt.Sprintf("%x", value), strings.ToUpper(name[:1])+name[1:], name)
	k := &canary{host: filepath.Join(c.volume, randomName()+".py")}
	file, tests, err := c.hiddenTests(prepared)
	switch {
	case err != nil:
		return nil, err
	case file != "":
		k.inside, text = path.Join(c.repo(), file), tests+text
	default:
		k.inside, k.named = path.Join(c.repo(), c.canaryFolder(), fmt.Sprintf("test_%s_%d.py", name, 1000+below(9000))), true
	}
	return k, os.WriteFile(k.host, []byte(text), 0o644)
}

// hiddenTests returns the first file of tests that the tests' patch touches, with
// its text; "" if there is none, or if the command picks single tests.
func (c *repoCheck) hiddenTests(prepared runtime.Sandbox) (file, text string, err error) {
	if slices.ContainsFunc(c.eval.Command.Args(), func(a string) bool { return strings.Contains(a, "::") || strings.Contains(a, " -k") || a == "-k" }) {
		return "", "", nil
	}
	dir, err := prepared.Path(c.repo())
	if err != nil {
		return "", "", err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = root.Close() }()
	for _, p := range c.testFiles() {
		base := path.Base(p)
		if !strings.HasPrefix(base, "test_") && !strings.HasSuffix(base, "_test.py") {
			continue
		}
		info, err := root.Lstat(p)
		if err != nil || !info.Mode().IsRegular() || info.Size() > maxTestFile {
			continue // deleted by the patch, perhaps
		}
		data, err := root.ReadFile(p)
		if err != nil {
			return "", "", err
		}
		return p, string(data), nil
	}
	return "", "", nil
}

const maxTestFile = 8 << 20 // bytes

// testFiles are the Python files that the tests' patch touches.
func (c *repoCheck) testFiles() []string {
	if c.eval.TestPatch == "" {
		return nil
	}
	touched, err := patch.Parse(c.eval.TestPatch)
	if err != nil {
		return nil // stage has parsed it before
	}
	return slices.DeleteFunc(pathsOf(touched), func(p string) bool { return !strings.HasSuffix(p, ".py") })
}

// testWords are the words in the names of the tests that a patch adds.
func testWords(text string) []string {
	var words []string
	for _, m := range regexp.MustCompile(`(?m)^\+\s*def test_([A-Za-z0-9_]+)`).FindAllStringSubmatch(text, -1) {
		words = append(words, strings.FieldsFunc(m[1], func(r rune) bool { return r == '_' })...)
	}
	if len(words) == 0 {
		return []string{"core", "values", "basic"}
	}
	return words
}

// below returns a random number from 0 to n-1.
func below(n int) int {
	i, err := rand.Int(rand.Reader, big.NewInt(int64(n)))
	if err != nil {
		panic(err) // crypto/rand never fails
	}
	return int(i.Int64())
}

// runsPytest says whether a canary can be handed to the command.
func runsPytest(c compiler.Command) bool {
	return slices.ContainsFunc(c.Args(), func(a string) bool { return strings.Contains(a, "pytest") || strings.Contains(a, "py.test") })
}

// canaryFolder is where the tests are, so that the same conftest.py files are
// read.
func (c *repoCheck) canaryFolder() string {
	if files := c.testFiles(); len(files) > 0 {
		return path.Dir(files[0])
	}
	return "."
}
