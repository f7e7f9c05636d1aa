package text

import (
	"testing"

	"github.com/securebench/sbench/internal/test/must"
)

// TestMarked: no mark of a text stays in it, by whatever way it came there.
func TestMarked(t *testing.T) {
	got := tokenize("\U000F0001, \U00100000 Paris\U00100001 \U0010FFFF").marked([][]token{wordsOf("Paris")}, 2, nil)
	must.Equal(t, ",  "+string(firstMark)+" ", got)
}
