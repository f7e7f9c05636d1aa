package text

import (
	"regexp"
	"strings"
	"sync"
)

// A language has the words around answers, as alternatives of regular expressions. Where words are
// separated by spaces, an announcement is a noun with a colon after it, or a noun and a verb; it
// begins a line or clause, or leads stand before it.
type language struct {
	lead, noun, verb string
	option           string // stands before a label, as in "option B"
	doubt            string // denies, or leaves open, what a sentence says
}

// languages returns the table of the nine languages: English, German, French, Spanish, Portuguese,
// Italian, Chinese, Japanese and Korean.
func languages() []language {
	return []language{
		{
			`the|my|our|an?|i|it|that|this|final|correct|right|best|so|thus|hence|therefore|and|is|be|must|would|per`,
			`ans(?:wer)?(?: choice| option)?(?: to (?:this|the) question)?|(?:correct|right|best|final|my) (?:choice|option)`,
			`(?:is|must be|should be)(?: therefore| thus| hence| then| indeed| clearly)?`, `option|choice|answer|letter`,
			`not|no|never|cannot|neither|nor|none|\w+n't|without|except|wrong|incorrect|mistaken?|misconception|confused?|` +
				`or|vs|versus|either|maybe|perhaps|possibly|probably|may be|might|could|if|unless|(?:but|than|at least|at most|up to|until|twice|half|between) [("*]*` + found + `|` + found + ` (?:hundred|thousand|million|billion|dozen)`,
		},
		{`die|das|es|meine|richtige|korrekte|endgültige|finale|also|somit|daher|ist`, `antwort(?:option)?|lösung|richtig`, `(?:ist|lautet)(?: also| daher| somit)?`, `option|antwort|wahl|möglichkeit`, `nicht|kein|keine|keiner|nie|niemals|weder|falsch|oder|entweder|vielleicht|könnte`},
		{`la|ma|bonne|donc|finale|est|c'est`, `réponse(?: correcte| finale| exacte| juste)?|option correcte`, `est(?: donc)?`, `option|réponse|choix`, `pas|jamais|aucun|aucune|faux|ou|soit|peut-être`},
		{`la|mi|tanto|que|es|correcta`, `respuesta(?: correcta| final)?|(?:opción|alternativa) correcta`, `es`, `opción|alternativa|letra|respuesta`, `nunca|ni|ningún|ninguna|incorrect[oa]|` + found + `,? o|quizás?|tal vez|podría`},
		{`a|minha|portanto|é`, `resposta(?: correta| certa| final)?|(?:opção|alternativa) (?:correta|certa)`, `é`, `opção|alternativa|letra`, `não|nem|nenhum|nenhuma|errad[oa]|ou|talvez|poderia`},
		{`la|mia|quindi|è`, `risposta(?: corretta| giusta| esatta| finale)?|(?:opzione|alternativa) (?:corretta|giusta)`, `è`, `opzione|alternativa|lettera|risposta`, `non|nessun|nessuna|sbagliat[oa]|` + found + `,? o|oppure|forse|potrebbe`},
		{noun: `(?:答案|正确选项|正確選項)(?:应该|應該|应|應)?(?:是|为|為|选|選| ?:)|(?:故|因此|所以|应|應|我)(?:选|選)(?:择|擇)?`, option: `选项|選項|项|(?:选|選)(?:择|擇)?`, doubt: `不|没|沒|错|錯|或|可能|也许|也許|要么|要麼`},
		{noun: `(?:正解|正答|答え|解答|回答)(?:は| ?:)`, option: `選択肢|選択`, doubt: `ない|ません|または|もしくは|かもしれ|どちらか|` + found + `か`},
		{noun: `(?:정답|답|답변)(?:은|는| ?:)`, option: `선택지|보기`, doubt: `아니|아닙니다|않|틀렸|틀린|또는|혹은|수도 있|` + found + `나 `},
	}
}

// phrases are the expressions that the table of languages makes.
type phrases struct {
	announced []*regexp.Regexp // the answer follows a match
	label     *regexp.Regexp   // a label with what may surround it, at the start of a line
	known     *regexp.Regexp   // a word that says nothing beside an answer
	doubt     *regexp.Regexp
}

var phrasesOf = sync.OnceValue(func() (p phrases) {
	var options, known, doubt []string
	for _, l := range languages() {
		form := l.noun
		if l.verb != "" { // words are separated by spaces
			form = `(?:^|[^\p{L}\p{N}\s]|\b(?:` + l.lead + `))[\s*_]*(?:` + l.noun + `)[*_]*(?: ?[:=]| - | (?:` + l.verb + `)[\s:])` +
				`|^[#>*_ ]*(?:(?:` + l.lead + `)[ *_]+)*(?:` + l.noun + `)[*_ ]*$`
			known = append(known, l.lead, l.noun, l.option)
			l.doubt = `(?:^|[^\p{L}\p{N}'-])(?:` + l.doubt + `)(?:[^\p{L}\p{N}'-]|$)`
		}
		p.announced = append(p.announced, regexp.MustCompile(`(?mi)(?:`+form+`)`))
		options, doubt = append(options, l.option), append(doubt, l.doubt)
	}
	p.label = regexp.MustCompile(`(?i)^[\s#>|•+-]*(?:(?:the |die |la |l'|a )?(?:` + strings.Join(options, "|") + `) ?[:#-]? ?|la |die |(?-i:a ))?([(\[{<]?) ?([a-z]) ?([)\]}>]?)`)
	p.known = regexp.MustCompile(`^(?:` + strings.Join(known, "|") + `)$`)
	p.doubt = regexp.MustCompile(strings.Join(doubt, "|") + `|[±≠]|[/|] ?["'*_]*` + found + `|` + found + `["'*_]* ?[/|?]`)
	return p
})
