package schema

import (
	"fmt"
	"strings"
)

// suggest returns `did you mean "x"?` for the known word nearest to written, or "" if none
// is near.
func suggest(written string, known []string) string {
	if len(written) > 64 {
		return ""
	}
	hint, distance := "", 1+max(1, len(written)/3)
	for _, word := range known {
		if d := editDistance(normal(written), normal(word)); d < distance {
			hint, distance = fmt.Sprintf("did you mean %q?", word), d
		}
	}
	return hint
}

// Suggest returns `did you mean "x"?` for the known word that written resembles or roughly
// begins, or "" if there is none.
func Suggest(written string, known []string) string {
	if hint := suggest(written, known); hint != "" || len(written) < 4 || len(written) > 64 {
		return hint
	}
	start := normal(written)
	for _, word := range known {
		long := normal(word)
		if n := len(start); len(long) > n && min(editDistance(start, long[:n]), editDistance(start, long[:n+1])) <= 1 {
			return fmt.Sprintf("did you mean %q?", word)
		}
	}
	return ""
}

// normal removes differences that are only conventions: case, hyphens, spaces and
// underscores.
func normal(s string) string {
	return strings.NewReplacer("-", "", " ", "", "_", "").Replace(strings.ToLower(s))
}

// editDistance returns the optimal string alignment distance in bytes: the number of
// insertions, deletions, replacements and swaps of neighbors that turn a into b.
func editDistance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
