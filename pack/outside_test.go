package pack_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/pack"
)

// riddles are the options of a format that package pack does not know.
type riddles struct {
	Loud bool `json:"loud,omitempty"`
}

func (r *riddles) format() pack.Format {
	return pack.Format{
		Name: "riddles", Source: "lines of questions and answers", Family: family.ShortAnswer(), Timeout: 60,
		Environment: map[string]any{"timeout_seconds": 60}, Options: r, Read: r.read,
	}
}

// read turns each line into a task.
func (r *riddles) read(ctx context.Context, b *pack.Builder) error {
	f, err := os.Open(b.Source)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		at := pack.Place{File: b.Source, Line: n}
		if err := b.Count(ctx, at); err != nil {
			return err
		}
		question, answer, ok := strings.Cut(lines.Text(), "\t")
		if r.Loud {
			question = strings.ToUpper(question)
		}
		if !ok {
			err = b.Reject(compiler.Problem{File: at.File, Line: at.Line, Message: "no answer"})
		} else {
			err = b.Add(ctx, at, pack.Row{
				ID: answer, Input: map[string]any{"question": question}, Eval: map[string]any{"accepted_answers": []string{answer}}, Metadata: map[string]any{},
			})
		}
		if err != nil {
			return err
		}
	}
	return lines.Err()
}

// TestFormatFromOutside: a format is a value, its options included, so that another
// package can bring one.
func TestFormatFromOutside(t *testing.T) {
	dir := t.TempDir()
	o := pack.Options{Source: filepath.Join(dir, "riddles.tsv"), Out: filepath.Join(dir, "out"), Skip: true}
	must(t, os.WriteFile(o.Source, []byte("what has keys?\tpiano\nno answer\nwhat has hands?\tclock\n"), 0o644))
	f, err := pack.Named([]pack.Format{(&riddles{Loud: true}).format()}, "riddles")
	must(t, err)
	report, err := pack.Import(t.Context(), f, o)
	must(t, err)
	if report.Tasks != 2 || len(report.Left) != 1 {
		t.Errorf("%+v", report)
	}
	checkPack(t, o.Out)
	rows, err := os.ReadFile(filepath.Join(o.Out, "tasks.jsonl"))
	must(t, err)
	text, err := os.ReadFile(filepath.Join(o.Out, "provenance.json"))
	must(t, err)
	var provenance struct{ Options map[string]any }
	must(t, json.Unmarshal(text, &provenance))
	if diff := cmp.Diff(map[string]any{"loud": true, "skip": true}, provenance.Options); diff != "" || !strings.Contains(string(rows), "WHAT HAS HANDS?") {
		t.Errorf("%s\n%s", diff, rows)
	}
}
