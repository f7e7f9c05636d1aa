package sbench_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
)

// TestLinks: what the pages link to exists, headings included.
func TestLinks(t *testing.T) {
	pages := map[string]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "runs") {
			return filepath.SkipDir
		}
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		pages[path] = string(text)
		return err
	})
	must.Do(t, err)
	fenced, headings := regexp.MustCompile("(?ms)^```.*?^```$"), regexp.MustCompile(`(?m)^#+ (.*)$`)
	punctuation := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	anchors := map[string]bool{}
	for path, text := range pages {
		for _, m := range headings.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			name := punctuation.ReplaceAllString(strings.ToLower(m[1]), "")
			anchors[path+"#"+strings.ReplaceAll(name, " ", "-")] = true
		}
	}
	links, seen := regexp.MustCompile(`\]\(([^)\s#]*)(#[^)\s]*)?\)`), 0
	for path, text := range pages {
		for _, m := range links.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			seen++
			target := path
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(path), m[1])
			}
			if _, err := os.Stat(target); err != nil || m[2] != "" && !anchors[target+m[2]] {
				t.Errorf("%s: nothing is at %s", path, m[0])
			}
		}
	}
	if seen < 100 {
		t.Errorf("%d links", seen)
	}
}
