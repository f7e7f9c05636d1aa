package sbench_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTroubleshooting: every message that docs/install.md quotes is one of the code.
func TestTroubleshooting(t *testing.T) {
	const page = "docs/install.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	sources(t, func(path string) {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(source)) {
			lines = append(lines, strings.ReplaceAll(line, `\"`, `"`))
		}
	})
	_, section, _ := strings.Cut(string(text), "\n## Messages and what to do\n") // about which there is more to know than they say
	messages := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1)
	if len(messages) < 12 {
		t.Errorf("%s quotes only %d messages", page, len(messages))
	}
	for _, m := range messages {
		if !occurs(lines, strings.Split(m[1], "…")) {
			t.Errorf("%s: no source has the message %q", page, m[1])
		}
	}
}

// occurs reports whether a line has all parts, in this order.
func occurs(lines, parts []string) bool {
	for _, line := range lines {
		found := true
		for _, part := range parts {
			var after string
			_, after, found = strings.Cut(line, strings.TrimSpace(part))
			if line = after; !found {
				break
			}
		}
		if found {
			return true
		}
	}
	return false
}

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
	if err != nil {
		t.Fatal(err)
	}
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
