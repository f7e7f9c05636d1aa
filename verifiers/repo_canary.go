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
)

// A canary is a file of tests that nobody knows. pytest runs it with the task's
// tests: once it has no test, and once it has one that fails. If the second run
// passes, something in the repository answers for the tests.
//
// Candidate code runs in the tests' process, and what tells the runs apart it
// could use to behave in one of them. So both have the file, by a name as the
// tests have it, and it is a hash that decides whether there is a test in it. Who
// computes the hash knows: that is as far as a canary can go.
type canary struct {
	host   string // path of the file
	inside string // where the tests' sandbox has it
}

// A unittest.TestCase is collected whatever the repository's pytest
// configuration says of names.
const canaryText = `import hashlib
import unittest

value = %q.encode()
for _ in range(%d):
    value = hashlib.sha256(value).digest()

if value.hex() == %q:
    class Test%s(unittest.TestCase):
        def test_%s(self):
            self.assertEqual(value, b"")
`

// newCanary writes the file; one that sings has a test that fails.
func (c *repoCheck) newCanary(sings bool) (*canary, error) {
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
	file := fmt.Sprintf("test_%s_%d.py", name, 1000+below(9000))
	host := filepath.Join(c.volume, file)
	if err := os.WriteFile(host, []byte(text), 0o644); err != nil {
		return nil, err
	}
	return &canary{host, path.Join(c.repo(), c.canaryFolder(), file)}, nil
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

// canaryFolder is where the tests are: beside the first test file that the
// tests' patch touches, so that the same conftest.py files are read.
func (c *repoCheck) canaryFolder() string {
	if c.eval.TestPatch == "" {
		return "."
	}
	touched, err := patch.Parse(c.eval.TestPatch)
	if err != nil {
		return "." // stage has parsed it before
	}
	for _, p := range pathsOf(touched) {
		if strings.HasSuffix(p, ".py") {
			return path.Dir(p)
		}
	}
	return "."
}
