package pack

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/internal/test/must"
)

// TestRowWithoutMetadata: a row to which its format gives no metadata says where it came from.
func TestRowWithoutMetadata(t *testing.T) {
	dir := t.TempDir()
	source, out := filepath.Join(dir, "lines.jsonl"), filepath.Join(dir, "out")
	must.Do(t, os.WriteFile(source, []byte(`{"id": "a"}`), 0o600))
	f := Format{Name: "lines", Family: family.ShortAnswer(), Timeout: 1, Read: each(func(r *record) (Row, error) {
		return Row{ID: r.text("id"), Input: map[string]any{"question": "?"}, Eval: map[string]any{"accepted_answers": []string{"x"}}}, nil
	})}
	_, err := Import(t.Context(), f, Options{Source: source, Out: out})
	must.Do(t, err)
	if rows := string(must.Read(t, filepath.Join(out, "tasks.jsonl"))); !strings.Contains(rows, `"metadata":{"source":{"file":"lines.jsonl"`) {
		t.Error(rows)
	}
}
