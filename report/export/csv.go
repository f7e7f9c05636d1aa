package export

import (
	"encoding/csv"
	"io"
	"regexp"
	"strconv"
	"time"

	"github.com/securebench/sbench/report"
)

// formula finds where a spreadsheet would begin a formula: at the start of a cell, even in
// spreadsheets that split lines at semicolons regardless of quotes.
var formula = regexp.MustCompile(`(^|;)(["' ]*[=+\-@＝＋－＠])`)

// harmlessCell returns a hostile text as one line, with an apostrophe before whatever would begin a formula.
func harmlessCell(s string) string {
	return formula.ReplaceAllString(report.Visible(s, report.ShownLine), "${1}'${2}")
}

// CSV writes a header and a line for each attempt, with the try that counts. Times are in seconds, sizes in
// bytes; an unknown number is empty. Control characters are escaped, and no text is a formula.
func CSV(w io.Writer, r report.Report, sources []*report.Source) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{ // the error comes back below
		"run", "benchmark", "task", "attempt", "status", "reason", "phase", "message", "family", "category", "agent", "started_at", "tries",
		"total_seconds", "producer_seconds", "verifier_seconds", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "cost_usd", "peak_memory_bytes", "assurance", "doubtful", "uncalibrated", "after_timeout",
	})
	for i, s := range sources {
		for _, a := range report.Ordered(s.Attempts) {
			line := []string{
				r.Runs[i].Title(), a.Benchmark, a.Task, strconv.Itoa(a.Number), string(a.Status), a.Reason, a.Phase, a.Message, a.Family, a.Category, a.Agent,
			}
			for i := range line {
				line[i] = harmlessCell(line[i])
			}
			started := ""
			if !a.Started.IsZero() {
				started = a.Started.UTC().Format(time.RFC3339)
			}
			line = append(line, started, strconv.Itoa(len(a.Tries)), decimal(a.Total), decimal(a.Producer), decimal(a.Verifier))
			tokens := make([]string, 4)
			if t := a.Tokens; t != nil {
				for i, n := range []int64{t.Input, t.Cached, t.Output, t.Reasoning} {
					tokens[i] = strconv.FormatInt(n, 10)
				}
			}
			_ = out.Write(append(append(line, tokens...), decimal(a.Cost), decimal(float64(a.PeakMemory)), harmlessCell(a.Assurance), strconv.FormatBool(a.Doubtful), strconv.FormatBool(a.Uncalibrated), strconv.FormatBool(a.AfterTimeout)))
		}
	}
	out.Flush()
	return out.Error()
}

// decimal formats a positive number without an exponent; an unknown number is "".
func decimal(v float64) string {
	if v <= 0 {
		return ""
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}
