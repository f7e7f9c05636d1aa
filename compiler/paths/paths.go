// Package paths says which paths the authors of packs and tester files may choose, and where sandboxes have what
// sbench puts into them.
package paths

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Directories of a workspace that sbench puts values into, one for each lane.
const (
	PublicRoot           = "securebench/public"
	EvaluationInputsRoot = "securebench/evaluation_inputs"
	EvaluatorRoot        = "securebench/evaluator"
)

// CheckerMount is where a verifier's sandbox has the files of a checker given by a path:
// outside the workspace, read-only.
const CheckerMount = "/tests"

// EvaluatorMount is where a verifier's sandbox has the same files as in SecureBench: at their path
// below asset_roots.eval.
const EvaluatorMount = "/opt/securebench/evaluator"

// TaskMount is where a harness's sandbox has the task file and the public values, read-only, if the
// candidate is a whole machine.
const TaskMount = "/opt/sbench/task"

const (
	maxPath = 1024 // bytes; far below PATH_MAX, to leave room for the path of the workspace
	maxName = 255  // bytes; NAME_MAX
)

// Parse returns the clean form of a relative slash-separated path that an author wrote,
// or an error that names the broken rule: it must not be empty, ".", absolute or longer than
// file systems allow, or contain "..", a backslash, a control character or invalid UTF-8.
func Parse(p string) (string, error) {
	switch {
	case p == "":
		return "", errors.New("path is empty")
	case strings.HasPrefix(p, "/"):
		return "", fmt.Errorf("path %q is absolute", p)
	case strings.Contains(p, `\`):
		return "", fmt.Errorf("path %q holds a backslash", p)
	case slices.Contains(strings.Split(p, "/"), ".."):
		return "", fmt.Errorf("path %q holds %q", p, "..")
	case strings.ContainsFunc(p, isOdd):
		return "", fmt.Errorf("path %q holds a control character or invalid UTF-8", p)
	}
	clean := path.Clean(p)
	if clean == "." {
		return "", fmt.Errorf("path %q names no file", p)
	}
	if len(clean) > maxPath {
		return "", fmt.Errorf("path of %d bytes is longer than %d", len(clean), maxPath)
	}
	for name := range strings.SplitSeq(clean, "/") {
		if len(name) > maxName {
			return "", fmt.Errorf("path holds a name of %d bytes, more than %d", len(name), maxName)
		}
	}
	return clean, nil
}

func isOdd(r rune) bool { return r == unicode.ReplacementChar || unicode.IsControl(r) }

// CheckPublic returns an error if an agent must not see anything at a clean path in the
// workspace. It does not check the contents of a directory that is mounted there.
func CheckPublic(clean string) error {
	folded := Fold(clean)
	// Other benchmark runners have answers and scores here. An agent could mistake a file for these.
	for _, denied := range []string{
		"ground_truth", "scorer", "eval", "task/hidden.json", "task/evaluation_inputs.json", "input/hidden.json", "output/score.json",
	} {
		if IsBelow(folded, denied) {
			return fmt.Errorf("mount %q is denied: nothing may lie at or below %q", clean, denied)
		}
	}
	for _, root := range []string{EvaluationInputsRoot, EvaluatorRoot} {
		if Overlap(folded, root) {
			return fmt.Errorf("mount %q is reserved for values that are not public", clean)
		}
	}
	return nil
}

// IsBelow reports whether the clean path p is at or below root.
func IsBelow(p, root string) bool {
	return p == root || strings.HasPrefix(p, root+"/")
}

// Overlap reports whether two clean paths are equal or one is below the other. Pass
// the results of Fold to compare as a file system that ignores case would.
func Overlap(a, b string) bool { return IsBelow(a, b) || IsBelow(b, a) }

// Fold returns the same form for all paths that some file system treats as equal: NFC of
// the full case folding. Linux distinguishes them, but copying the workspace to another file
// system would lose a file.
func Fold(p string) string {
	if !strings.ContainsFunc(p, func(r rune) bool { return r > unicode.MaxASCII }) {
		return strings.ToLower(p)
	}
	lower := strings.ToLower(norm.NFD.String(p)) // alone, cases.Fold exchanges the two cases of Cherokee
	return norm.NFC.String(cases.Fold().String(lower))
}

// IsWorkdir reports whether p is an absolute path that may name a working directory.
func IsWorkdir(p string) bool {
	return path.IsAbs(p) && !strings.ContainsFunc(p, isOdd) && !strings.Contains(p, `\`) &&
		!slices.Contains(strings.Split(p, "/"), "..") && len(p) <= maxPath
}

// IsTaken reports whether every sandbox mounts the clean path dir or needs it unchanged.
func IsTaken(dir string) bool {
	tops := []string{"/proc", "/sys", "/dev", CheckerMount, "/logs", "/opt/securebench", "/opt/sbench", "/sbench", "/.sbench"}
	return slices.Contains([]string{"/tmp", "/run", "/etc", "/opt"}, dir) ||
		slices.ContainsFunc(tops, func(top string) bool { return IsBelow(dir, top) })
}
