package text

import "strings"

// The words around answers in nine languages, as alternatives of regular expressions in which ¦ stands for the
// answer. Chinese, Japanese and Korean words do not stand apart, and follow.
const (
	cross = `[❌✗✘✖]` // it denies what it follows, and wrong takes back what precedes it
	wrong = `nope|wrong|incorrect|false|mistaken?|a myth|a misconception|falsch|faux|incorrect[oa]|errad[oa]|sbagliat[oa]`
	month = `(?:jan(?:uary?|uar)?|feb(?:ruary?|ruar)?|mar(?:ch)?|märz|apr(?:il)?|mai|may|jun[ei]?|jul[iy]?|aug(?:ust)?|sept?(?:ember)?|o[ck]t(?:ober)?|nov(?:ember)?|de[cz](?:ember)?)`
)

var (
	// A noun announces an answer if a colon or a verb follows it.
	nouns = `ans(?:wer)?(?: choice| option)?(?: to (?:this|the) question)?|(?:correct|right|best|final|my) (?:choice|option)|antwort(?:option)?|lösung|richtig|` +
		`réponse(?: correcte| finale| exacte| juste)?|option correcte|respuesta(?: correcta| final)?|(?:opción|alternativa) correcta|` +
		`resposta(?: correta| certa| final)?|(?:opção|alternativa) (?:correta|certa)|risposta(?: corretta| giusta| esatta| finale)?|(?:opzione|alternativa) (?:corretta|giusta)`
	verbs     = `is|must be|should be|ist|lautet|est|es|é|è`
	announces = `(?:答案|正确选项|正確選項)(?:应该|應該|应|應)?(?:是|为|為|选|選|】| ?:)|(?:故|因此|所以|应|應|我)(?:选|選)(?:择|擇)?|` +
		`(?:正解|正答|答え|解答|回答)(?:は| ?:)|(?:정답|답|답변)(?:은|는| ?:)`

	// so leads to a conclusion.
	so = apart(`so|thus|hence|therefore|somit|daher|folglich|donc|por (?:lo )?tanto|así que|portanto|logo|quindi|dunque`,
		`因此|所以|故|(?:^|[^に])よって|したがって|따라서|[→⇒]`)

	// and joins the items of a list.
	and = `[&•·|]\s|\s(?:-|vs\.?|and|und|et|y|e)\s|[和と]`

	// explanation is what does not count beside an answer.
	explanation = expression(`(?i)(?:[,;]? (?:because|although|though|whereas|weil|obwohl|parce que|puisque|bien que|porque|ya que|aunque|embora|perché|poiché|sebbene)|, ?(?:as|since|while|da|denn|car|pois)) [^.!?]*|(?i: than| als) [^.,;:!?\d]*(?:$|[.,;:!?])`)

	// denial denies what its clause says.
	denial = expression(apart(wrong+`|not|never|cannot|unable|neither|nor|none|\w+n't|no (?:longer|way)|no\W*$|except|confused?|misconception|(?:some|many|most|others|people|sources)(?: people| sources)? (?:might |would )?(?:say|think|believe|claim|assume|guess)|anything|everything|`+
		`nicht|keine?[rnms]?|niemals|weder|keinesfalls|pas|jamais|aucune?|ni|no (?:es|sé|son|era|fue|está|tiene|hay|puede|\p{L}+ó)|nunca|ninguna?|`+
		`não|nem|nenhuma?|non|nessuna?`,
		cross+`|不|没|沒|错|錯|間違|ない|ません|なく|아니|아닙니다|않|틀렸|틀린`))

	// or leaves open what its clause says.
	or = apart(`or|vs|versus|either|whether|maybe|perhaps|possibly|might|may be|could be|if|unless|torn between|(?:than|at least|at most|up to|between|both|half of|twice|double) ¦|are ¦ and|¦ (?:hundred|thousand|million|billion|dozen)|`+
		`oder|entweder|ob|könnte|vielleicht|ou|soit|peut-être|pourrait|quizás?|tal vez|puede ser|pode ser|talvez|oppure|forse|potrebbe`,
		`或|可能|也许|也許|要么|要麼|または|もしくは|かもしれ|どちらか|¦か|또는|혹은|수도 있|¦나 |이나 ¦|±|¦ (?:o (?-i:\p{Lu})|o \d|o ¦|[<>≤≥] ?[\p{L}\d])|/ ?["']*¦|¦["']* ?/|\?["')]*\s*$`)
)

// apart returns an expression for words that stand apart from others, and for any more.
func apart(words, more string) string {
	return strings.ReplaceAll(`(?i:(?:^|[^\p{L}\p{N}'-])(?:`+words+`)(?:[^\p{L}\p{N}'-]|$)|`+more+`)`, "¦", found)
}

// announcement ends before an answer. It is a noun and what follows it, or a noun alone in a line.
var announcement = expression(`(?mi)` + announces +
	`|(?:^|[^\p{L}\p{N}])(?:` + nouns + `)(?:"? ?[:=]| - | (?:` + verbs + `)[\s:])|^[#> ]*(?:\p{L}+ +){0,2}(?:` + nouns + `) *$`)
