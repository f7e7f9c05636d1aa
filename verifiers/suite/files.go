package suite

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers/contrast"
)

// Bounds of the test files that are changed.
const (
	maxTestFile  = 4 << 20
	maxTestFiles = 200
)

// IsTest reports whether a file is a program that is named like a test.
func IsTest(f contrast.File) bool { return IsCode(f) && testName.MatchString(path.Base(f.Path)) }

var testName = regexp.MustCompile(`(?i)test|spec|check|\.t$`)

// ReadTests returns the named files that contain Python tests.
func ReadTests(root *os.Root, names []string) []contrast.File {
	return slices.DeleteFunc(ReadFiles(root, names), func(f contrast.File) bool {
		return path.Ext(f.Path) != ".py" || !strings.Contains(f.Text, "def test") || !utf8.ValidString(f.Text)
	})
}

// ReadFiles returns the named files that can be changed.
func ReadFiles(root *os.Root, names []string) (files []contrast.File) {
	for _, name := range names {
		base := path.Base(name)
		if base == "conftest.py" || base == "__init__.py" || len(files) == maxTestFiles {
			continue
		}
		info, err := root.Lstat(name)
		if err != nil || !info.Mode().IsRegular() || info.Size() > maxTestFile {
			continue // perhaps deleted by the patch
		}
		if text, err := root.ReadFile(name); err == nil {
			files = append(files, contrast.File{Path: name, Text: string(text)})
		}
	}
	return files
}

// SameAge gives all files below a directory the present time, so that no time tells which files were
// changed, and make finds them newer than what it has built.
func SameAge(dir string) error {
	now := time.Now()
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		return os.Chtimes(name, now, now)
	})
}

// AnswersMount is where every run of a [Command] has a file for answers, which its user can write.
const AnswersMount = "/sbench-answers"

const (
	answersFile = "answers"
	maxAnswers  = 16 << 20 // bytes
)

// MountAnswers makes a file for answers in a directory that no candidate can write, and returns its mount.
func MountAnswers(dir string) (runtime.Mount, error) {
	at := filepath.Join(dir, answersFile)
	err := os.WriteFile(at, nil, 0o600)
	if err == nil {
		err = os.Chmod(at, 0o666) // tests may run as any user
	}
	return runtime.Mount{Source: at, Dest: AnswersMount, Writable: true}, err
}

// ReadAnswers reads what is in the file that [MountAnswers] has made, up to 16 MiB.
func ReadAnswers(dir string) (contrast.Answers, error) {
	f, err := os.Open(filepath.Join(dir, answersFile))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxAnswers))
	return contrast.ParseAnswers(string(text)), errors.Join(err, f.Close())
}

// Below returns the regular files below a directory, without those that package managers install.
func Below(root *os.Root, dir string) (names []string, err error) {
	err = fs.WalkDir(root.FS(), dir, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != dir && installed.MatchString(d.Name()):
			return fs.SkipDir
		case d.Type().IsRegular():
			names = append(names, name)
		}
		return nil
	})
	return names, err
}

var installed = regexp.MustCompile(`^(\..+|node_modules|site-packages)$`)

// TestsBelow returns the Python files below a directory that are named like tests.
func TestsBelow(root *os.Root, dir string) []string {
	names, _ := Below(root, dir) // what can be read counts
	return slices.DeleteFunc(names, func(name string) bool {
		base := path.Base(name)
		return !(strings.HasPrefix(base, "test") || strings.HasSuffix(base, "_test.py")) || path.Ext(base) != ".py"
	})
}

// LacksPytest reports whether the output says that there is no pytest.
func LacksPytest(outputs ...runtime.Output) bool {
	return slices.ContainsFunc(outputs, func(o runtime.Output) bool { return pytestMissing.MatchString(o.String()) })
}

var pytestMissing = regexp.MustCompile(`(?m)No module named ('pytest'|pytest)\s*$|pytest: (command )?not found`)
