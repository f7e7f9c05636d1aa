package sbench_test

import (
	"os"
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
	_, section, _ := strings.Cut(string(text), "\n## Messages and their cures\n")
	messages := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1)
	if len(messages) < 60 {
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
