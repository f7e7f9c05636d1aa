package verifiers

import (
	"cmp"
	_ "embed"
	"strings"
	"sync"
	"unicode/utf8"
)

// A wordClass is a set of words that words.txt lists and explains.
type wordClass string

const (
	denial       wordClass = "denial"
	hedge        wordClass = "hedge"
	announcement wordClass = "announcement"
	copula       wordClass = "copula"
	glue         wordClass = "glue"
	standIn      wordClass = "standin"
	changer      wordClass = "changer"
	conjunction  wordClass = "conjunction"
	quantifier   wordClass = "quantifier"
	unit         wordClass = "unit"
	factor       wordClass = "factor"
)

//go:embed words.txt
var wordList string

// lexicon returns the values of the words of each class.
var lexicon = sync.OnceValue(func() map[wordClass]map[string]string {
	all := map[wordClass]map[string]string{}
	for line := range strings.Lines(wordList) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		classes, words, _ := strings.Cut(line, ":")
		for _, class := range strings.Fields(classes) {
			name, value, _ := strings.Cut(class, "=")
			of := all[wordClass(name)]
			if of == nil {
				of = map[string]string{}
				all[wordClass(name)] = of
			}
			for _, w := range strings.Fields(words) {
				of[w] = cmp.Or(value, name)
			}
		}
	}
	return all
})

// of returns the value of w in the class; "" if it is not in it.
func (c wordClass) of(w string) string {
	if strings.HasSuffix(w, "n't") {
		w = "not"
	}
	return lexicon()[c][w]
}

// has reports whether w is in the class. Any single letter is a stand-in.
func (c wordClass) has(w string) bool {
	return c.of(w) != "" || c == standIn && utf8.RuneCountInString(w) == 1
}
