package pack

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/document"
)

const mmluColumns = 6 // question, A, B, C, D, answer

// readMmlu turns each record of the per-subject CSV files of MMLU into a task. The source is one file, or a directory, which
// is searched two levels deep, since the files may be in test/, dev/ and val/. The task's id is the file's name and the
// record's number.
func readMmlu(ctx context.Context, b *Builder) error {
	files, err := csvFiles(b.Source)
	if err != nil {
		return err
	}
	for _, name := range files {
		n := 0
		err := table(ctx, b, name, func(r *record) (Row, error) {
			n++
			if n == 1 && len(r.fields) == mmluColumns && slices.Contains([]string{"answer", "target"}, strings.ToLower(strings.TrimSpace(r.fields[5]))) {
				n = 0 // a header, which some copies have
				return Row{}, nil
			}
			return mmluRow(r, n), nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func mmluRow(r *record, n int) Row {
	if len(r.fields) != mmluColumns {
		r.wrong("", "expected %d columns (question, four choices, answer), found %d", mmluColumns, len(r.fields))
		return Row{}
	}
	answer := strings.TrimSpace(r.fields[5])
	if len(answer) != 1 || !strings.Contains("ABCD", answer) {
		r.wrong("", "the answer %q is none of A, B, C and D", answer)
		return Row{}
	}
	for i, name := range []string{"question", "choice A", "choice B", "choice C", "choice D"} {
		if strings.TrimSpace(r.fields[i]) == "" {
			r.wrong("", "the %s is blank", name)
			return Row{}
		}
	}
	file := strings.TrimSuffix(strings.TrimSuffix(r.file.Name, ".gz"), ".csv")
	return Row{
		ID:       fmt.Sprintf("%s/%d", file, n),
		Input:    map[string]any{"question": r.fields[0], "choices": r.fields[1:5]},
		Eval:     map[string]any{"answer": answer},
		Metadata: map[string]any{"subject": mmluSplit.ReplaceAllString(file, "")},
	}
}

// mmluSplit matches what a file's name says besides the subject.
var mmluSplit = regexp.MustCompile(`(_val)?(_dev)?(_test)?$`)

// csvFiles returns the file itself, or the CSV files of a directory, sorted.
func csvFiles(source string) ([]string, error) {
	at := Place{File: source}
	info, err := os.Stat(source)
	if err != nil {
		return nil, at.problem("", "%v", document.Bare(err))
	}
	if !info.IsDir() {
		return []string{source}, nil
	}
	var files []string
	err = filepath.WalkDir(source, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.Count(strings.TrimPrefix(name, filepath.Clean(source)), string(filepath.Separator)) > 2):
			return fs.SkipDir
		case d.Type().IsRegular() && (strings.HasSuffix(name, ".csv") || strings.HasSuffix(name, ".csv.gz")):
			files = append(files, name)
		}
		return nil
	})
	if err != nil {
		return nil, at.problem("", "%v", err)
	}
	if len(files) == 0 {
		return nil, at.problem("", "directory holds no CSV file")
	}
	return files, nil
}
