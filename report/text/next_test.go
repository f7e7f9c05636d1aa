package text_test

import (
	"bytes"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/report/text"
	"github.com/securebench/sbench/run"
)

// TestNext: what a run proposes at its end.
func TestNext(t *testing.T) {
	tests := []struct {
		name    string
		s       run.Summary
		tasks   []report.Task
		args    []string
		standIn string
		want    string
	}{
		{"measured", run.Summary{Total: 4, Planned: 4, Passed: 2, Failed: 2}, []report.Task{{TaskID: "a", Scored: 2, Passed: 1}, {TaskID: "b", Scored: 1}}, []string{"run"}, "", "next: sbench report '/my runs/a'\n"},
		{"interrupted", run.Summary{Total: 6, Planned: 30, Passed: 6}, nil, []string{"run", "--config", "it's.yaml", "--task", "a/*"}, "", `next: sbench report '/my runs/a'
      sbench run --config 'it'\''s.yaml' --task 'a/*' --resume
`},
		{"nothing measured", run.Summary{Total: 3, Planned: 164, Errors: 3, Infrastructure: 3}, nil, []string{"run", "--resume"}, "", `next: sbench report '/my runs/a'
      sbench run --resume
`},
		{"the pack is at fault", run.Summary{Total: 1, Planned: 1, Errors: 1}, nil, []string{"run"}, "", `next: sbench report '/my runs/a'
      sbench pack check /pack
      (the pack or its image is at fault: fix it, and continue with --resume)
`},
		{"a task that nobody passes", run.Summary{Total: 4, Planned: 4, Passed: 1, Failed: 3}, []report.Task{{TaskID: "a", Scored: 1, Passed: 1}, {TaskID: "b", Scored: 3}}, []string{"run"}, "", `next: sbench report '/my runs/a'
      sbench pack check /pack
      (no candidate of b passed: does the reference pass?)
`},
		{"all fail, one is left out", run.Summary{Total: 3, Planned: 3, Failed: 3, LeftOut: []run.LeftOut{{Task: "x", Reason: "no \x1b image"}}}, nil, []string{"run"}, "", `not prepared, and left out of the score:
  x: no \x1b image

next: sbench report '/my runs/a'
      sbench pack check /pack
      (no attempt passed: does the reference pass?)
`},
		{"rows that stand in", run.Summary{Total: 1, Planned: 1, Passed: 1}, nil, []string{"run"}, "sbench pack import mmlu X --fill", `these rows stand in for the benchmark's own: download those as /pack/README.md says, and put them in place with
      sbench pack import mmlu X --fill --out /pack

next: sbench report '/my runs/a'
`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			tt.s.Output = "/my runs/a/candidates.jsonl"
			must.Do(t, text.WriteNext(&out, tt.s, report.Run{Tasks: tt.tasks}, tt.args, "/pack", tt.standIn))
			must.Equal(t, "\n"+tt.want, out.String())
		})
	}
}
