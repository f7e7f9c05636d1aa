package verifiers

import (
	"regexp"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
)

// A token is a word, a number, a date or a symbol of a text.
type token struct {
	kind  tokenKind
	text  string // folded; numbers and dates in one form, however they are written
	raw   string // as written
	glued bool   // no white space before it
	num   numeral
	named bool // it is part of a mention
}

type tokenKind int

const (
	symbol tokenKind = iota
	word
	number
	date
)

// tokenize splits a text into tokens. Markdown and LaTeX become punctuation,
// and a box or tag around an answer becomes "answer:".
func tokenize(s string) []token { return join(join(scan(unmark(plain(s))), dateAt), numberAt) }

var (
	latexFraction = regexp.MustCompile(`\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}`)
	latexCommand  = regexp.MustCompile(`\\(?:text|textbf|mathrm|mathbf|left|right|displaystyle)\b`)
	answerTag     = regexp.MustCompile(`(?i)<(?:final_?)?answer>`)
	answerEnd     = regexp.MustCompile(`(?i)</(?:final_?)?answer>`)
	bullet        = regexp.MustCompile(`(?m)^ *(?:[-*>] +|#+ +|[0-9]{1,2}[.)] +)([^-+0-9 ])`)
	latexSymbols  = strings.NewReplacer(`\boxed`, " answer: ", "{,}", ",", `\times`, "×", `\cdot`, "×", `\approx`, "≈", `\pm`, "±", `\sqrt`, "√",
		`\%`, "%", `\$`, "$", `\(`, " ", `\)`, " ", `\[`, " ", `\]`, " ", `\,`, " ", `\ `, " ", "$$", " ", "||", "|")
)

func unmark(s string) string {
	if strings.Contains(s, `\`) {
		s = latexFraction.ReplaceAllString(s, "$1/$2")
		s = latexCommand.ReplaceAllString(s, " ")
		s = latexSymbols.Replace(s)
	}
	if strings.Contains(s, "<") {
		s = answerTag.ReplaceAllString(s, "\nanswer: ")
		s = answerEnd.ReplaceAllString(s, "\n")
	}
	return bullet.ReplaceAllString(s, "$1")
}

// scan splits s at white space and around symbols. It keeps "isn't", "c++", "c#"
// and "h2o" whole. In scripts without spaces each rune is a token.
func scan(s string) []token {
	var out []token
	fold := cases.Fold()
	rs := []rune(s)
	glued := false
	for i := 0; i < len(rs); {
		start := i
		switch r := rs[i]; {
		case r == ' ':
			glued = false
			i++
			continue
		case isDigit(r) || r == '.' && i+1 < len(rs) && isDigit(rs[i+1]) || isSign(rs, i):
			var n numeral
			n, i = scanNumeral(rs, i)
			out = append(out, token{kind: number, text: n.text, raw: string(rs[start:i]), glued: glued, num: n})
		case isWordRune(r):
			for i++; i < len(rs) && continuesWord(rs, i); i++ {
			}
			raw := string(rs[start:i])
			out = append(out, token{kind: word, text: fold.String(raw), raw: raw, glued: glued})
		default:
			i++
			out = append(out, token{kind: symbol, text: string(r), raw: string(r), glued: glued})
		}
		glued = true
	}
	return out
}

func isWordRune(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsNumber(r)
}

func isDigit(r rune) bool { return '0' <= r && r <= '9' }

// isSign reports whether the rune at i is the sign of the number after it.
func isSign(rs []rune, i int) bool {
	if rs[i] != '-' && rs[i] != '+' || i+1 == len(rs) || !isDigit(rs[i+1]) && (rs[i+1] != '.' || i+2 == len(rs) || !isDigit(rs[i+2])) {
		return false
	}
	return i == 0 || strings.ContainsRune(" \n([{\"'=:,;*_`~$≈^|", rs[i-1])
}

// isSpaceless reports whether r belongs to a script without spaces.
func isSpaceless(r rune) bool {
	return r > unicode.MaxLatin1 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana,
		unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

func continuesWord(rs []rune, i int) bool {
	r, before := rs[i], rs[i-1]
	last := i+1 == len(rs)
	switch {
	case unicode.IsMark(r):
		return true
	case isWordRune(r):
		return !isSpaceless(r) && !isSpaceless(before)
	case r == '\'':
		return !last && unicode.IsLetter(before) && unicode.IsLetter(rs[i+1])
	case r == '+' || r == '#':
		return unicode.IsLetter(before) && (last || !isWordRune(rs[i+1])) || r == before && (last || !isWordRune(rs[i+1]))
	}
	return false
}

// wordsOf returns the texts of the tokens that are not symbols, and their indices.
func wordsOf(ts []token) (texts []string, at []int) {
	for i, t := range ts {
		if t.kind != symbol {
			texts = append(texts, t.text)
			at = append(at, i)
		}
	}
	return texts, at
}
