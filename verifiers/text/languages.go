package text

import "strings"

// A language has the words around answers, as alternatives of regular expressions, in which ¦ stands
// for the answer. A noun announces an answer if a colon or a verb follows it. A language without
// spaces between words has no verb: its noun is the whole announcement.
type language struct {
	noun, verb string
	so         string // leads to a conclusion
	option     string // stands before a label, as in "option B"
	deny       string // denies what its clause says
	or         string // leaves open what its clause says
}

// languages returns the table of the nine languages: English, German, French, Spanish, Portuguese,
// Italian, Chinese, Japanese and Korean.
func languages() []language {
	return []language{
		{
			noun: `ans(?:wer)?(?: choice| option)?(?: to (?:this|the) question)?|(?:correct|right|best|final|my) (?:choice|option)`,
			verb: `is|must be|should be`, so: `so|thus|hence|therefore`, option: `option|choice|answer|letter`,
			deny: `not|never|cannot|neither|nor|none|\w+n't|no (?:longer|way)|no\W*$|except|wrong|incorrect|false|mistaken?|confused?|misconception|anything|everything`,
			or:   `or|vs|versus|either|maybe|perhaps|possibly|might|may be|could be|if|unless|(?:than|at least|at most|up to|between|both) ¦|are ¦ and|¦ (?:hundred|thousand|million|billion|dozen)`,
		},
		{
			noun: `antwort(?:option)?|lösung|richtig`, verb: `ist|lautet`, so: `somit|daher|folglich`, option: `\p{L}*(?:option|antwort|möglichkeit)|wahl`,
			deny: `nicht|keine?[rnms]?|niemals|weder|falsch|keinesfalls`, or: `oder|entweder|vielleicht`,
		},
		{
			noun: `réponse(?: correcte| finale| exacte| juste)?|option correcte`, verb: `est`, so: `donc`, option: `réponse|choix`,
			deny: `pas|jamais|aucune?|faux|ni`, or: `ou|soit|peut-être`,
		},
		{
			noun: `respuesta(?: correcta| final)?|(?:opción|alternativa) correcta`, verb: `es`, so: `por (?:lo )?tanto|así que`, option: `opción|alternativa|letra|respuesta`,
			deny: `no (?:es|son|era|fue|está|tiene|hay|puede|\p{L}+ó)|nunca|ninguna?|incorrect[oa]`, or: `¦ o [\p{Lu}\d¦]|quizás?|tal vez`,
		},
		{
			noun: `resposta(?: correta| certa| final)?|(?:opção|alternativa) (?:correta|certa)`, verb: `é`, so: `portanto|logo`, option: `opção|alternativa|letra`,
			deny: `não|nem|nenhuma?|errad[oa]`, or: `talvez`,
		},
		{
			noun: `risposta(?: corretta| giusta| esatta| finale)?|(?:opzione|alternativa) (?:corretta|giusta)`, verb: `è`, so: `quindi|dunque`, option: `opzione|alternativa|lettera|risposta`,
			deny: `non|nessuna?|sbagliat[oa]`, or: `oppure|forse`,
		},
		{
			noun: `(?:答案|正确选项|正確選項)(?:应该|應該|应|應)?(?:是|为|為|选|選| ?:)|(?:故|因此|所以|应|應|我)(?:选|選)(?:择|擇)?`,
			so:   `因此|所以|故`, option: `选项|選項|项|(?:选|選)(?:择|擇)?`, deny: `不|没|沒|错|錯`, or: `或|可能|也许|也許|要么|要麼`,
		},
		{
			noun: `(?:正解|正答|答え|解答|回答)(?:は| ?:)`, so: `よって|したがって`, option: `選択肢|選択`,
			deny: `ない|ません|なく`, or: `または|もしくは|かもしれ|どちらか|¦か`,
		},
		{noun: `(?:정답|답|답변)(?:은|는| ?:)`, so: `따라서`, option: `선택지|보기`, deny: `아니|아닙니다|않|틀렸|틀린`, or: `또는|혹은|수도 있|¦나 `},
	}
}

// anyOf returns the alternatives of all languages, in the table's column or made of it.
func anyOf(column func(language) string) string {
	var all []string
	for _, l := range languages() {
		all = append(all, column(l))
	}
	return `(?i:` + strings.ReplaceAll(strings.Join(all, "|"), "¦", found) + `)`
}

// apart returns an expression that matches words only where they stand apart from others.
func (l language) apart(words string) string {
	if l.verb == "" {
		return words
	}
	return `(?:^|[^\p{L}\p{N}'-])(?:` + words + `)(?:[^\p{L}\p{N}'-]|$)`
}

func conclusion(l language) string { return l.apart(l.so) }

var (
	// announcement ends before an answer. It is a key in JSON, which is its group, a noun and what
	// follows it, or a noun alone in a line.
	announcement = expression(`(?m)([{,]\s*"(?i:(?:final_)?answer)"\s*:)|` + anyOf(func(l language) string {
		if l.verb == "" {
			return l.noun
		}
		return `(?:^|[^\p{L}\p{N}])(?:` + l.noun + `)[*_]*(?: ?[:=]| - | (?:` + l.verb + `)[\s:])|^[#>*_ ]*(?:\p{L}+[ *_]+){0,2}(?:` + l.noun + `)[*_ ]*$`
	}))
	so    = expression(anyOf(conclusion) + `|[=≈]`)
	start = expression(anyOf(conclusion) + `|[\n.,;:!?]`) // of a clause
	deny  = expression(anyOf(func(l language) string { return l.apart(l.deny) }))
	open  = expression(anyOf(func(l language) string { return l.apart(l.or) }) + `|±|/ ?["'*_]*` + found + `|` + found + `["'*_]* ?/|\?["'*_)]*\s*$`)
	// orAfter is what leaves open after punctuation.
	orAfter = expression(`[,;:(] ?(` + anyOf(func(l language) string {
		if l.verb == "" {
			return l.or
		}
		return `(?:` + l.or + `)[^\p{L}]`
	}) + `)`)
)
