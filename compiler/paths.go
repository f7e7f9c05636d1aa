package compiler

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

// Folders of a workspace that sbench owns.
const (
	PublicRoot           = "securebench/public"
	EvaluationInputsRoot = "securebench/evaluation_inputs"
	EvaluatorRoot        = "securebench/evaluator"
)

// CheckerMount is where a verifier's sandbox holds the files of a checker that
// is given by its path: outside the workspace, read-only.
const CheckerMount = "/tests"

const (
	maxPath = 1024 // bytes; far below PATH_MAX, so that a workspace's own path fits before it
	maxName = 255  // bytes; NAME_MAX
)

// deniedMounts returns the paths that nothing may be mounted at or below.
// Other benchmark runners keep answers and scores there, and an agent that
// finds such a file would take it for one.
func deniedMounts() []string {
	return []string{
		"ground_truth", "scorer", "eval", "task/hidden.json", "task/evaluation_inputs.json",
		"input/hidden.json", "output/score.json",
	}
}

// ParsePath returns the clean form of a relative slash path that an author
// wrote, or an error that says which rule it breaks: it is not empty and not
// ".", not absolute, holds no "..", backslash, control character or invalid
// UTF-8, and is of a length that file systems take.
func ParsePath(p string) (string, error) {
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

// ParseMount returns the clean form of the place in the workspace where an
// author wants a file, if the component may see files there: for agent and
// test_sandbox anywhere but at the denied paths and in the folders of other
// lanes, for evaluator only below securebench/evaluator. A result has no
// files.
func ParseMount(component Component, mount string) (string, error) {
	clean, err := ParsePath(mount)
	if err != nil {
		return "", err
	}
	switch component {
	case Agent, TestSandbox:
		if err := checkPublicMount(clean); err != nil {
			return "", err
		}
		return clean, nil
	case Evaluator:
		return clean, checkBelow(clean, EvaluatorRoot)
	}
	return "", fmt.Errorf("component %q has no workspace", component)
}

func checkPublicMount(clean string) error {
	folded := FoldPath(clean)
	for _, denied := range deniedMounts() {
		if isBelow(folded, denied) {
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

// parseLaneMount checks the mount of an eval file: below the folder of its
// lane.
func parseLaneMount(lane Lane, mount string) (string, error) {
	clean, err := ParsePath(mount)
	if err != nil {
		return "", err
	}
	return clean, checkBelow(clean, laneRoot(lane))
}

func laneRoot(lane Lane) string {
	switch lane {
	case EvaluationInputs:
		return EvaluationInputsRoot
	case HiddenLane:
		return EvaluatorRoot
	}
	return PublicRoot
}

func checkBelow(clean, root string) error {
	if !isBelow(clean, root) {
		return fmt.Errorf("mount %q does not lie below %q", clean, root)
	}
	return nil
}

// isBelow reports whether the clean path p is root or lies below it.
func isBelow(p, root string) bool {
	return p == root || strings.HasPrefix(p, root+"/")
}

// Overlap reports whether two clean paths are equal or one lies below the
// other. Fold both first to compare as a careful file system would.
func Overlap(a, b string) bool { return isBelow(a, b) || isBelow(b, a) }

// FoldPath returns a form of the path in which two names are equal that some
// file system takes for the same: NFC of the full case folding. Linux keeps
// them apart, but whoever copies a workspace elsewhere loses a file.
func FoldPath(p string) string {
	ascii := !strings.ContainsFunc(p, func(r rune) bool { return r > unicode.MaxASCII })
	if ascii {
		return strings.ToLower(p)
	}
	folded := cases.Fold().String(norm.NFD.String(p))
	return norm.NFC.String(strings.Map(foldRune, folded))
}

// foldRune returns the same rune for all that differ by case only. The full
// folding, which knows that "ß" is "ss", goes to small letters for some scripts
// and to capital ones for others, such as Cherokee.
func foldRune(r rune) rune {
	least := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		least = min(least, next)
	}
	if 'A' <= least && least <= 'Z' {
		least += 'a' - 'A'
	}
	return least
}
