package request_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/securebench/sbench/proxy/relay/request"
)

// TestMemory: a check takes little memory besides the body, even if it changes the body.
func TestMemory(t *testing.T) {
	for name, body := range map[string]string{
		"a long text":       `{"model":"m","web_search_options":{},"messages":[{"role":"user","content":"` + strings.Repeat("x", 31<<20) + `"}]}`,
		"many values":       `{"model":"m","web_search_options":{},"metadata":{"a":[` + strings.Repeat(`{"a":0},`, 100_000) + `0]}}`,
		"many values again": `{"model":"m","messages":[` + strings.Repeat(`{"a":0},`, 100_000) + `{}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			found, err := request.Chat().Check([]byte(body), request.Options{Model: "m"})
			runtime.ReadMemStats(&after)
			took := int64(after.TotalAlloc - before.TotalAlloc - uint64(len(body))) // the conversion to bytes
			if took > 2*request.TreeBytes {
				t.Errorf("%d bytes for %d, %v", took, found.Body.Len(), err)
			}
		})
	}
}
