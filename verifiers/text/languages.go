package text

import (
	"regexp"
	"strings"
	"sync"
)

// A language has the words around answers, as alternatives of regular expressions. Where words are
// separated by spaces, an announcement is a noun with a colon after it, or a noun and a verb; it
// begins a line or clause, or lead or so stands before it. ¦ stands for the answer.
type language struct {
	noun, verb, lead string
	so               string // leads to a conclusion
	option           string // stands before a label, as in "option B"
	deny             string // denies what its clause says
	or               string // leaves open what its clause says
}

// languages returns the table of the nine languages: English, German, French, Spanish, Portuguese,
// Italian, Chinese, Japanese and Korean.
func languages() []language {
	return []language{
		{
			noun: `ans(?:wer)?(?: choice| option)?(?: to (?:this|the) question)?|(?:correct|right|best|final|my) (?:choice|option)`,
			verb: `(?:is|must be|should be)(?: therefore| thus| hence| then| indeed| clearly)?`,
			lead: `the|my|our|final|correct|right|best|and|is`, so: `so|thus|hence|therefore`, option: `option|choice|answer|letter`,
			deny: `not|never|cannot|neither|nor|none|\w+n't|no (?:longer|way)|no\W*$|except|wrong|incorrect|false|mistaken?|confused?|misconception|anything|everything`,
			or:   `or|vs|versus|either|maybe|perhaps|possibly|might|may be|could be|if|unless|(?:than|at least|at most|up to|between|both) ¦|are ¦ and|¦ (?:hundred|thousand|million|billion|dozen)`,
		},
		{
			noun: `antwort(?:option)?|lösung|richtig`, verb: `(?:ist|lautet)(?: also| daher| somit)?`, lead: `die|meine|richtige|korrekte|endgültige|finale|ist`,
			so: `somit|daher|folglich`, option: `option|antwort|wahl|möglichkeit`, deny: `nicht|keine?[rnms]?|niemals|weder|falsch|keinesfalls`, or: `oder|entweder|vielleicht`,
		},
		{
			noun: `réponse(?: correcte| finale| exacte| juste)?|option correcte`, verb: `est(?: donc)?`, lead: `la|ma|bonne|finale|est`,
			so: `donc`, option: `réponse|choix`, deny: `pas|jamais|aucune?|faux|ni`, or: `ou|soit|peut-être`,
		},
		{
			noun: `respuesta(?: correcta| final)?|(?:opción|alternativa) correcta`, verb: `es`, lead: `la|mi`,
			so: `por (?:lo )?tanto|así que`, option: `opción|alternativa|letra|respuesta`,
			deny: `no (?:es|son|era|fue|está|tiene|hay|puede|\p{L}+ó)|nunca|ninguna?|incorrect[oa]`, or: `¦ o [\p{Lu}\d¦]|quizás?|tal vez`,
		},
		{
			noun: `resposta(?: correta| certa| final)?|(?:opção|alternativa) (?:correta|certa)`, verb: `é`, lead: `a|minha`,
			so: `portanto|logo`, option: `opção|alternativa|letra`, deny: `não|nem|nenhuma?|errad[oa]`, or: `talvez`,
		},
		{
			noun: `risposta(?: corretta| giusta| esatta| finale)?|(?:opzione|alternativa) (?:corretta|giusta)`, verb: `è`, lead: `la|mia`,
			so: `quindi|dunque`, option: `opzione|alternativa|lettera|risposta`, deny: `non|nessuna?|sbagliat[oa]`, or: `oppure|forse`,
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

// phrases are the expressions that the table of languages makes.
type phrases struct {
	announced      []*regexp.Regexp // the answer follows a match
	option         *regexp.Regexp   // ends with a word before a label
	so, deny, open *regexp.Regexp
	orAfter        *regexp.Regexp // punctuation and a word that leaves open
}

var phrasesOf = sync.OnceValue(func() (p phrases) {
	var so, option, deny, or, after []string
	word := func(s string) string { return `(?:^|[^\p{L}\p{N}'-])(?:` + s + `)(?:[^\p{L}\p{N}'-]|$)` }
	for _, l := range languages() {
		form := l.noun
		if l.verb != "" { // words are separated by spaces
			lead := l.lead + "|" + l.so
			form = `(?:^|[^\p{L}\p{N}\s]|\b(?:` + lead + `))[\s*_]*(?:` + l.noun + `)[*_]*(?: ?[:=]| - | (?:` + l.verb + `)[\s:])` +
				`|^[#>*_ ]*(?:(?:` + lead + `)[ *_]+)*(?:` + l.noun + `)[*_ ]*$`
			after = append(after, `(?:`+l.or+`)[^\p{L}]`)
			l.so, l.deny, l.or = word(l.so), word(l.deny), word(l.or)
		} else {
			after = append(after, l.or)
		}
		p.announced = append(p.announced, regexp.MustCompile(`(?mi)(?:`+form+`)`))
		so, option, deny, or = append(so, l.so), append(option, l.option), append(deny, l.deny), append(or, strings.ReplaceAll(l.or, "¦", found))
	}
	union := func(all []string) string { return `(?i)(?:` + strings.Join(all, "|") + `)` }
	p.so, p.deny, p.option = regexp.MustCompile(union(so)+`|[=≈]`), regexp.MustCompile(union(deny)), regexp.MustCompile(union(option)+`[ :#-]*$`)
	p.open = regexp.MustCompile(union(or) + `|±|/ ?["'*_]*` + found + `|` + found + `["'*_]* ?/|\?["'*_)]*\s*$`)
	p.orAfter = regexp.MustCompile(`[,;:(] ?(` + strings.ReplaceAll(union(after), "¦", found) + `)`)
	return p
})
