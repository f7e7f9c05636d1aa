package relay_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy/relay"
)

// TestAgentsRequests: what the agents send passes unchanged, except codex's search. The files are requests of
// their second turn to a scripted provider, with shorter texts and fewer tools.
func TestAgentsRequests(t *testing.T) {
	files, err := filepath.Glob("testdata/agents/*.json")
	if err != nil || len(files) != 5 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			raw := must.Read(t, file)
			var request struct {
				Path string
				Body json.RawMessage
			}
			must.Do(t, json.Unmarshal(raw, &request))
			provider := relay.OpenAI
			switch {
			case strings.HasPrefix(request.Path, "/v1beta/"):
				provider = relay.Google
			case request.Path == messagesPath:
				provider = relay.Anthropic
			}
			var want []string
			if strings.Contains(file, "codex") {
				want = []string{"web_search"}
			}
			_, found, err := relay.Inspect(provider, request.Path, request.Body)
			if err != nil || !slices.Equal(found.Removed, want) {
				t.Errorf("removed %q, %v, want %q", found.Removed, err, want)
			}
		})
	}
}
