package record

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/workspace"
)

// WorkspaceName returns the name of a try's workspace below [WorkspacesDir], and below whatever other
// directory it has before it is judged.
func WorkspaceName(task string, attempt, try int) string {
	name := workspace.TaskDir(task)
	if attempt > 1 || try > 1 {
		name += "." + numbers(attempt, try)
	}
	return name
}

// LogDir returns the directory of a try's logs, relative to the run's directory.
func LogDir(task string, attempt, try int) string {
	return path.Join(LogsDir, tryDir(task, attempt, try))
}

// tryDir returns the path of a try's files in a directory for logs.
func tryDir(task string, attempt, try int) string {
	return path.Join(workspace.TaskDir(task), numbers(attempt, try))
}

// numbers returns the number of an attempt, followed by the number of the try if it is a retry.
func numbers(attempt, try int) string {
	if try > 1 {
		return fmt.Sprintf("%d.%d", attempt, try)
	}
	return fmt.Sprint(attempt)
}

// files returns the paths, in the run's directory, of what the record names apart from its private part. The
// error means that a path is not the record's own.
func (r *Record) files() (names []string, err error) {
	for _, l := range r.Logs {
		if own := LogDir(r.TaskID, r.Attempt, r.Try); !strings.HasPrefix(l.Path, own+"/") || path.Clean(l.Path) != l.Path {
			return nil, fmt.Errorf("log %q is not in the attempt's own directory, %s", l.Path, own)
		}
		names = append(names, l.Path)
	}
	if r.CandidateWorkspace == nil || !filepath.IsLocal(*r.CandidateWorkspace) { // grade leaves it where it is
		return names, nil
	}
	own := path.Join(WorkspacesDir, WorkspaceName(r.TaskID, r.Attempt, r.Try))
	if *r.CandidateWorkspace != own {
		return nil, fmt.Errorf("candidate_workspace %q is not the attempt's own, %s", *r.CandidateWorkspace, own)
	}
	names = append(names, own)
	if r.WorkspaceAttributes != "" {
		names = append(names, own+workspace.AttributesSuffix)
	}
	if r.LayerDigest != "" {
		names = append(names, own+layer.Suffix)
	}
	return names, nil
}

// IsRun reports whether a path is a run's output directory, with a manifest or records. It is an
// error if the path is a file of a run, or a directory of several runs.
func IsRun(source string) (bool, error) {
	has := func(parts ...string) bool {
		_, err := os.Lstat(filepath.Join(parts...))
		return err == nil
	}
	info, err := os.Stat(source)
	switch {
	case err != nil:
		return false, err
	case !info.IsDir():
		base := filepath.Base(source)
		if (base == RecordsFile || base == ManifestFile) && has(filepath.Dir(source), ManifestFile) {
			return false, fmt.Errorf("%q is a file of a run: name the run's directory", source)
		}
		return false, nil
	case has(source, ManifestFile):
		return true, nil
	case has(source, RecordsFile): // a run of SecureBench
		return false, nil
	}
	entries, err := os.ReadDir(source)
	for _, e := range entries {
		if e.IsDir() && has(source, e.Name(), ManifestFile) && has(source, e.Name(), RecordsFile) {
			return false, fmt.Errorf("%q holds the runs of a matrix or shards, such as %q: name one of them (sbench merge puts shards together)", source, e.Name())
		}
	}
	return false, err
}
