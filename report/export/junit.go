package export

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/run/record"
)

// The elements of JUnit's XML, as continuous integration servers read it.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name       string          `xml:"name,attr"`
		Tests      int             `xml:"tests,attr"`
		Failures   int             `xml:"failures,attr"`
		Errors     int             `xml:"errors,attr"`
		Skipped    int             `xml:"skipped,attr"`
		Time       string          `xml:"time,attr"`
		Timestamp  string          `xml:"timestamp,attr,omitempty"`
		Properties []junitProperty `xml:"properties>property,omitempty"`
		Cases      []junitCase     `xml:"testcase"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Class      string          `xml:"classname,attr"`
		Name       string          `xml:"name,attr"`
		Time       string          `xml:"time,attr"`
		Properties []junitProperty `xml:"properties>property,omitempty"`
		Failure    *junitCause     `xml:"failure"`
		Error      *junitCause     `xml:"error"`
		Skipped    *junitCause     `xml:"skipped"`
	}
	junitCause struct {
		Type    string `xml:"type,attr,omitempty"`
		Message string `xml:"message,attr"`
	}
)

// junitText bounds a text, in characters.
const junitText = 4 << 10

// JUnit writes runs as JUnit XML: a suite for each run, with its warnings as properties, and a case for
// each attempt. An attempt that could not be measured is an error, a pending attempt is skipped. All planned
// attempts without a record are one more error. JUnit escapes control characters.
func JUnit(w io.Writer, r report.Report, sources []*report.Source) error {
	var all junitSuites
	for i, s := range sources {
		all.Suites = append(all.Suites, junitOf(r.Runs[i], s))
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func junitOf(r report.Run, s *report.Source) junitSuite {
	c := r.Counts
	suite := junitSuite{Name: report.Visible(r.Title(), junitText), Tests: c.Attempts, Failures: c.Failed, Errors: c.Errors, Skipped: c.Pending}
	if r.StartedAt != nil {
		suite.Timestamp = r.StartedAt.UTC().Format(time.RFC3339)
	}
	for _, w := range r.Warnings() {
		suite.Properties = append(suite.Properties, junitProperty{w.Kind, report.Visible(w.Text, junitText)})
	}
	total := 0.0
	for _, a := range report.Ordered(s.Attempts) {
		total += a.Total
		test := junitCase{Class: report.Visible(strings.Trim(a.Benchmark+"."+a.Family, "."), junitText), Name: report.Visible(a.Task, junitText), Time: fmt.Sprintf("%.3f", a.Total)}
		if a.Number > 1 {
			test.Name += fmt.Sprintf(" #%d", a.Number)
		}
		cause := &junitCause{report.Visible(a.Reason, junitText), report.Visible(a.Message, junitText)}
		if a.Assurance != "" {
			test.Properties = append(test.Properties, junitProperty{"assurance", report.Visible(a.Assurance, junitText)})
		}
		for _, p := range []struct {
			name string
			is   bool
		}{{"doubtful", a.Doubtful}, {"uncalibrated", a.Uncalibrated}, {"after_timeout", a.AfterTimeout}} {
			if p.is {
				test.Properties = append(test.Properties, junitProperty{p.name, "true"})
			}
		}
		switch a.Status {
		case record.Passed:
		case record.Failed:
			test.Failure = cause
		case record.Pending:
			test.Skipped = cause
		default:
			test.Error = cause
		}
		suite.Cases = append(suite.Cases, test)
	}
	if n := r.Missing(); n > 0 {
		suite.Tests, suite.Errors = suite.Tests+1, suite.Errors+1
		missing := &junitCause{"not_recorded", fmt.Sprintf("%d of %d planned attempts are not recorded", n, r.Planned)}
		suite.Cases = append(suite.Cases, junitCase{Class: report.Visible(r.BenchmarkID, junitText), Name: "planned attempts", Time: "0.000", Error: missing})
	}
	suite.Time = fmt.Sprintf("%.3f", total)
	return suite
}
