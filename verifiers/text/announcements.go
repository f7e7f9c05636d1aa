package text

import (
	"regexp"
	"strings"
	"sync"
)

// A language has the words by which an answer is announced, as alternatives of regular
// expressions. Where words are separated by spaces, an announcement is a noun with a colon after
// it, or a noun and a verb; it begins a line or clause, or leads stand before it.
type language struct {
	name             string
	lead, noun, verb string
	// tail ends an announcement; it is no part of the answer.
	tail string
	// option stands before a label, as in "option B"; points before the only label of a sentence,
	// as in "it is B", and right after it, as in "B is correct".
	option, points, right string
	// not denies, and or leaves open, what a sentence says.
	not, or string
}

// languages returns the table of the nine languages.
func languages() []language {
	return []language{
		{
			name: "English", lead: `the|my|our|final|correct|right|best|so|thus|hence|therefore|and|is`,
			noun: `ans(?:wer)?(?: choice| option)?(?: to (?:this|the) question)?|(?:correct|right|best|final|my) (?:choice|option)`,
			verb: `(?:is|must be|should be)(?: therefore| thus| hence| then| indeed| clearly)?`, option: `option|choice|answer|letter`,
			points: `is|be|it's|that's|choose|pick|select|would say|get|gives|makes it|so|thus|hence|therefore`, right: `is (?:the |my )?(?:correct|right|best|final)`,
			not: `not|no|never|cannot|neither|nor|none|\w+n't|without|except|wrong|incorrect|mistaken?|misconception|confused?`,
			or:  "or|vs|versus|either|maybe|perhaps|possibly|probably|might|could|if|unless|(?:than|at least|at most|up to|before|after|until|twice|half|between|both) " + found + "|are " + found + " and|" + found + " (?:hundred|thousand|million|billion|dozen)",
		},
		{
			name: "German", lead: `die|meine|richtige|korrekte|endgültige|finale|also|somit|daher|ist`, noun: `antwort(?:option)?|lösung|richtig`,
			verb: `(?:ist|lautet)(?: also| daher| somit)?`, option: `option|antwort|wahl|möglichkeit`,
			points: `ist(?: die)?|wähle|also`, right: `ist (?:die )?(?:richtig|korrekt)`,
			not: `nicht|kein|keine|keiner|nie|niemals|weder|falsch`, or: `oder|entweder|vielleicht|könnte`,
		},
		{
			name: "French", lead: `la|ma|bonne|donc|finale|est`, noun: `réponse(?: correcte| finale| exacte| juste)?|option correcte`,
			verb: `est(?: donc)?`, option: `option|réponse|choix`,
			points: `(?:c')?est(?: la)?|s'agit de|choisis|donc`, right: `est (?:la )?(?:bonne|correct|juste)`, not: `pas|jamais|aucun|aucune|faux`, or: `ou|soit|peut-être`,
		},
		{
			name: "Spanish", lead: `la|mi|tanto|que`, noun: `respuesta(?: correcta| final)?|(?:opción|alternativa) correcta`,
			verb: `es`, option: `opción|alternativa|letra|respuesta`,
			points: `es(?: la)?|elijo`, right: `es (?:la )?(?:respuesta )?correct`, not: `nunca|ni|ningún|ninguna|incorrect[oa]`, or: found + `,? o|quizás?|tal vez|podría`,
		},
		{
			name: "Portuguese", lead: `a|minha|portanto`, noun: `resposta(?: correta| certa| final)?|(?:opção|alternativa) (?:correta|certa)`,
			verb: `é`, option: `opção|alternativa|letra`,
			points: `é(?: a)?|escolho`, right: `é (?:a )?(?:resposta )?(?:corret|cert)`, not: `não|nem|nenhum|nenhuma|errad[oa]`, or: `ou|talvez|poderia`,
		},
		{
			name: "Italian", lead: `la|mia|quindi`, noun: `risposta(?: corretta| giusta| esatta| finale)?|(?:opzione|alternativa) (?:corretta|giusta)`,
			verb: `è`, option: `opzione|alternativa|lettera|risposta`,
			points: `è(?: la)?|scelgo`, right: `è (?:la )?(?:risposta )?(?:corrett|giust)`, not: `non|nessun|nessuna|sbagliat[oa]`, or: found + `,? o|oppure|forse|potrebbe`,
		},
		{
			name: "Chinese", noun: `(?:答案|正确选项|正確選項)(?:应该|應該|应|應)?(?:是|为|為|选|選| ?:)|(?:故|因此|所以|应|應|我)(?:选|選)(?:择|擇)?`,
			option: `选项|選項|项|(?:选|選)(?:择|擇)?`, not: `不|没|沒|错|錯`, or: `或|可能|也许|也許|要么|要麼`,
		},
		{
			name: "Japanese", noun: `(?:正解|正答|答え|解答|回答)(?:は| ?:)`, tail: `です|である|だ|となります|になります`,
			option: `選択肢|選択`, not: `ない|ません`, or: `または|もしくは|かもしれ|どちらか|` + found + `か`,
		},
		{
			name: "Korean", noun: `(?:정답|답|답변)(?:은|는| ?:)`, tail: `번?(?:입니다|이다|예요|이에요)|번`,
			option: `선택지|보기`, not: `아니|아닙니다|않|틀렸|틀린`, or: `또는|혹은|수도 있|` + found + `나 `,
		},
	}
}

// phrases are the expressions that the table of languages makes.
type phrases struct {
	announced []*regexp.Regexp // the answer follows a match
	tail      *regexp.Regexp   // at the end of what is announced
	option    string           // the alternatives of all languages
	pointed   *regexp.Regexp   // a label with a word that points to it
	denied    *regexp.Regexp
	open      *regexp.Regexp
}

var phrasesOf = sync.OnceValue(func() (p phrases) {
	var tails, options, points, right, not, or []string
	for _, l := range languages() {
		form, alone := l.noun, func(s string) string { return s }
		if l.verb != "" { // words are separated by spaces
			form = `(?:^|[^\p{L}\p{N}\s]|\b(?:` + l.lead + `))[\s*_]*(?:` + l.noun + `)[*_]*(?: ?[:=]| - | (?:` + l.verb + `)[\s:])` +
				`|^[#>*_ ]*(?:(?:` + l.lead + `)[ *_]+)*(?:` + l.noun + `)[*_ ]*$`
			points, right = append(points, l.points), append(right, l.right)
			alone = func(s string) string { return `(?:^|[^\p{L}\p{N}'-])(?:` + s + `)(?:[^\p{L}\p{N}'-]|$)` }
		}
		p.announced = append(p.announced, regexp.MustCompile(`(?mi)(?:`+form+`)`))
		options, not, or = append(options, l.option), append(not, alone(l.not)), append(or, alone(l.or))
		if l.tail != "" {
			tails = append(tails, l.tail)
		}
	}
	p.tail = regexp.MustCompile(`(?:` + strings.Join(tails, "|") + `)[.。!]?$`)
	p.option = strings.Join(options, "|")
	p.pointed = regexp.MustCompile(`(?i:(?:^|[^\p{L}\p{N}])(?:` + strings.Join(points, "|") + `),? |是 ?|:[*_]* ?)["']?([A-Z])(?:[^\p{L}\p{N}'-]|$)|(?:^|[^\p{L}\p{N}'-])([A-Z])["']?(?i: (?:` + strings.Join(right, "|") + `)|是正确|が正解|(?:가|이) 정답)`)
	p.denied, p.open = regexp.MustCompile(strings.Join(not, "|")), regexp.MustCompile(strings.Join(or, "|"))
	return p
})
