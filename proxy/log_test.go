package proxy_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/securebench/sbench/proxy"
)

// TestLogRedacts: a log redacts secrets in the texts that a sandbox can influence. It does not change
// numbers and the task's name, and the line is valid JSON.
func TestLogRedacts(t *testing.T) {
	var out bytes.Buffer
	log := proxy.NewLog(&out)
	log.Try, log.Redact = 2, func(s string) string { return strings.ReplaceAll(s, "12345678", "<redacted>") }
	log.Write(proxy.Entry{
		Task: "t/12345678", Attempt: 1, Kind: proxy.KindConnect, Verdict: proxy.Deny, Host: "x12345678.example", Model: "12345678",
		Stripped: []string{"tool-12345678"}, Up: 12345678,
	})
	var got proxy.Entry
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || log.Err() != nil {
		t.Fatalf("%v, %v: %s", err, log.Err(), &out)
	}
	if got.Host != "x<redacted>.example" || got.Model != "<redacted>" || got.Stripped[0] != "tool-<redacted>" || got.Up != 12345678 || got.Task != "t/12345678" || got.Try != 2 {
		t.Errorf("%s", &out)
	}
}
