package suite

import (
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

// Bounds of the test files that are made blind or broken.
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
const AnswersMount = "/opt/sbench/answers"

const maxAnswers = 16 << 20 // bytes

// An AnswersFile is a file for answers. Its mode says nothing to who has it open: candidates can change it.
type AnswersFile struct{ f *os.File }

// NewAnswersFile makes a file for answers in a directory that no candidate can write, and returns its mount. The
// caller reads it when the sandbox has ended.
func NewAnswersFile(dir string) (AnswersFile, runtime.Mount, error) {
	f, err := os.Create(filepath.Join(dir, "answers"))
	if err != nil {
		return AnswersFile{}, runtime.Mount{}, err
	}
	err = f.Chmod(0o666) // tests may run as any user
	return AnswersFile{f}, runtime.Mount{Source: f.Name(), Dest: AnswersMount, Writable: true}, err
}

// Read returns the answers in the first 16 MiB that can be read, and closes the file.
func (a AnswersFile) Read() contrast.Answers {
	defer func() { _ = a.f.Close() }()
	text, _ := io.ReadAll(io.LimitReader(a.f, maxAnswers))
	return contrast.ParseAnswers(string(text))
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
