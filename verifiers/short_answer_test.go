package verifiers_test

import (
	"strings"
	"testing"

	"github.com/securebench/sbench/compiler"
)

func shortTask(t testing.TB, question string, tolerance any, accepted ...any) *compiler.Task {
	t.Helper()
	eval := object{"accepted_answers": accepted}
	if tolerance != nil {
		eval["tolerance"] = tolerance
	}
	return textTask(t, "short_answer", object{"question": question}, eval)
}

const capital = "What is the capital of France?"

// TestShortAnswerText has the accepted answers Paris and Lutetia. An attack comes
// before its honest twin.
func TestShortAnswerText(t *testing.T) {
	task := shortTask(t, capital, nil, "Paris", "Lutetia")
	for _, c := range []struct{ name, text, want string }{
		{"equal", "Paris", ""},
		{"case", "pARIS", ""},
		{"white space", "\r\n\t Paris  \n\n", ""},
		{"quotes and point", "“Paris.”", ""},
		{"other accepted", "Lutetia", ""},
		{"both accepted", "Paris (Lutetia)", ""},
		{"answer is", "The answer is Paris.", ""},
		{"answer colon", "Answer: Paris", ""},
		{"bold", "**Answer:** **Paris**", ""},
		{"bold in a sentence", "The capital of France is **Paris**.", ""},
		{"boxed", `$\boxed{Paris}$`, ""},
		{"sentence", "The capital of France is Paris.", ""},
		{"sentence the other way round", "Paris is the capital of France", ""},
		{"word of the question beside it", "Paris, France", ""},
		{"opinion", "I believe it is Paris, of course.", ""},
		{"last line", "France has many cities, and only one where the government sits.\nParis", ""},
		{"last line of one line of thought", "I have to think about the government of that country first.\nIt's Paris.", ""},
		{"last line with lead-in", "Lyon\nMarseille\nAnswer: Paris", ""},
		{"said twice", "Paris\nParis", ""},
		{"wrong", "London", "wrong_answer"},
		{"wrong sentence", "The capital of France is London.", "wrong_answer"},
		{"part of a word", "Parisian", "wrong_answer"},
		{"part of a compound", "Paris-Nord", "several_answers"},

		{"attack: empty", "", "no_answer"},
		{"attack: blank", "\n \t\n", "no_answer"},
		{"attack: invisible", "\u200b\u2060\u202e\ufeff", "no_answer"},
		{"attack: punctuation", ".,;:", "no_answer"},
		{"attack: commas", "Paris, London, Rome", "several_answers"},
		{"attack: spaces", "London Paris Rome", "several_answers"},
		{"attack: or", "Paris or London", "several_answers"},
		{"attack: slash", "London/Paris", "several_answers"},
		{"attack: lines", "London\nRome\nParis", "several_answers"},
		{"attack: lines with bullets", "- London\n- Rome\n- Paris", "several_answers"},
		{"attack: two lines", "London\nParis", "several_answers"},
		{"attack: sentences", "It is London. It is Rome. It is Paris.", "several_answers"},
		{"attack: sentences in lines", "It is London.\nIt is Paris.", "several_answers"},
		{"twin: thought, then a sentence", "London and Rome are capitals of other states.\nIt is Paris.", ""},
		{"attack: two statements", "Answer: London\nAnswer: Paris", "several_answers"},
		{"twin: the same statement twice", "Answer: Paris\nI am sure of it.\nAnswer: Paris", ""},
		{"attack: list in the statement", "The answer is Paris or London.", "several_answers"},
		{"attack: not", "not Paris", "wrong_answer"},
		{"attack: is not", "The capital of France is not Paris.", "wrong_answer"},
		{"attack: isn't", "It isn’t Paris", "wrong_answer"},
		{"attack: wrong, right", "London is wrong, Paris", "several_answers"},
		{"twin: wrong, right in lines", "London is wrong, as that is in another country.\nParis", ""},
		{"attack: asks", "Is it Paris?", "several_answers"},
		{"attack: quoted question alone", capital, "no_answer"},
		{"twin: quoted question and the answer", capital + " Paris.", ""},
		{"twin: quoted question, answer below", capital + "\nParis", ""},
		{"attack: zero width list", "London,\u200bParis", "several_answers"},
		{"twin: zero width", "\u200bPa\u200bris\u200d", ""},
		{"attack: bidi list", "\u202eParis \u202dLondon", "several_answers"},
		{"twin: bidi", "\u202aParis\u202c", ""},
		{"attack: fullwidth list", "Ｐａｒｉｓ，Ｌｏｎｄｏｎ", "several_answers"},
		{"twin: fullwidth", "Ｐａｒｉｓ．", ""},
		{"attack: combining", "P\u0336a\u0336r\u0336i\u0336s\u0336", "wrong_answer"},
		{"attack: struck out and another", "L\u0336yon Paris", "several_answers"},
		{"attack: separators", "London\u2028Paris\u2029Rome", "several_answers"},
		{"attack: nul", "London\x00Paris", "several_answers"},
		{"attack: long", strings.Repeat("London ", 1<<16) + "Paris", "several_answers"},
		{"twin: long thought", strings.Repeat("I wonder what it could be. ", 1<<15) + "\nParis", ""},
		{"attack: verdict", `{"passed": true}`, "several_answers"},
	} {
		t.Run(c.name, func(t *testing.T) { checkText(t, task, c.text, c.want) })
	}
}

// TestShortAnswerNumber has the accepted answer 1234.5 with a tolerance of 0.1.
func TestShortAnswerNumber(t *testing.T) {
	task := shortTask(t, "How long is it?", 0.1, 1234.5)
	for _, c := range []struct{ name, text, want string }{
		{"equal", "1234.5", ""},
		{"upper bound", "1234.6", ""},
		{"lower bound", "1234.4", ""},
		{"thousands", "1,234.5", ""},
		{"plus", "+1234.50", ""},
		{"exponent", "1.2345e3", ""},
		{"small exponent", "12345000E-4", ""},
		{"unit", "1234.5 km", ""},
		{"currency", "$1,234.50", ""},
		{"attack: per cent", "1234.5%", "wrong_answer"},
		{"lead-in", "The answer is **1234.5**.", ""},
		{"boxed", `\boxed{1,234.5}`, ""},
		{"formula", "x = 1234.5", ""},
		{"sentence", "It must be about 1234.5 metres, measured along the river.", ""},
		{"bold with unit", "Length: **1234.5 m**", ""},
		{"square metres", "1234.5 m²", ""},
		{"other digits", "١٢٣٤.٥", ""},
		{"mathematical digits", "𝟏𝟐𝟑𝟒.𝟓", ""},
		{"fullwidth digits", "１２３４．５", ""},
		{"working, then the result", "1000 + 234.5 is the sum\n1234.5", ""},
		{"working, then a sentence", "1000 + 234.5\nSo it is 1234.5 km.", ""},
		{"same number twice", "1234.5\n1234.5", ""},
		{"above", "1234.61", "wrong_answer"},
		{"just above", "1234.6000000000000000000000001", "wrong_answer"},
		{"below", "1234.39", "wrong_answer"},
		{"negative", "-1234.5", "wrong_answer"},
		{"minus sign", "−1234.5", "wrong_answer"},
		{"negative currency", "-$1234.5", "several_answers"},
		{"sign apart", "= - 1234.5", "several_answers"},
		{"words for the sign", "minus 1234.5", "several_answers"},
		{"not a number", "NaN", "wrong_answer"},
		{"infinity", "inf", "wrong_answer"},
		{"negative infinity", "-Infinity", "wrong_answer"},
		{"huge exponent", "1e999999999", "wrong_answer"},
		{"tiny exponent", "1234.5e-999999999999999999999", "wrong_answer"},
		{"hexadecimal", "0x4D2", "wrong_answer"},
		{"fraction", "2469/2", ""},
		{"power", "1234.5²", "wrong_answer"},
		{"groups of two", "12,34.5", "wrong_answer"},

		{"attack: two numbers", "1234.5 or 1300", "several_answers"},
		{"attack: list", "1233, 1234.5, 1236", "several_answers"},
		{"attack: lines", "1200\n1300\n1234.5", "several_answers"},
		{"attack: range", "1234.5-1300", "several_answers"},
		{"attack: glued", "1233,1234.5", "wrong_answer"},
		{"attack: statements", "Answer: 1200\nAnswer: 1234.5", "several_answers"},
		{"twin: number in the working", "There are 3 parts of 411.5 each.\nAnswer: 1234.5", ""},
		{"attack: not", "not 1234.5", "wrong_answer"},
		{"attack: anything but", "It isn't 1234.5", "wrong_answer"},
		{"attack: less than", "less than 1234.5", "several_answers"},
		{"attack: comparison", "> 1234.5", "several_answers"},
		{"attack: asks", "1234.5?", "several_answers"},
		{"attack: factorial", "1234.5!", "several_answers"},
		{"attack: thousand", "1234.5 thousand", "wrong_answer"},
		{"twin: exclamation after the unit", "1234.5 km!", ""},
		{"attack: all digits", strings.Repeat("1234567890", 1<<16), "wrong_answer"},
		{"attack: zero width list", "1234\u200b5 1234.5", "several_answers"},
		{"twin: zero width", "1234\u200b.5", ""},
		{"attack: points", "1.234.5", "wrong_answer"},
		{"attack: other digits in a list", "1234.5 ١٢٣٦", "several_answers"},
		{"circled, as a thousand", "①234.5", ""},
	} {
		t.Run(c.name, func(t *testing.T) { checkText(t, task, c.text, c.want) })
	}
}

func TestShortAnswerRows(t *testing.T) {
	for _, c := range []struct {
		name, question string
		tolerance      any
		accepted       []any
		text, want     string
	}{
		{"number as text", "How many?", nil, []any{42}, "42", ""},
		{"number as text, with unit", "How many?", nil, []any{42}, "42 apples", ""},
		{"no tolerance, other form", "How many?", nil, []any{42}, "42.0", "wrong_answer"},
		{"tolerance zero, other form", "How many?", 0, []any{42}, "42.000", ""},
		{"tolerance zero, off", "How many?", 0, []any{42}, "42.0000000000000000001", "wrong_answer"},
		{"a third is exact in decimals", "How much?", 0.3, []any{"4.2"}, "4.5", ""},
		{"number or word", "How many?", nil, []any{4, "four"}, "There are four (4).", ""},
		{"number and word apart", "How many?", nil, []any{4, "four"}, "four", ""},
		{"attack: word and another number", "How many?", nil, []any{4, "four"}, "5 four", "several_answers"},
		{"nan as an accepted text", "What?", nil, []any{"NaN"}, "nan", ""},
		{"huge accepted number", "What?", 1, []any{"1e400000"}, "1e400000", ""},
		{"attack: huge accepted number", "What?", 1, []any{"1e400000"}, "1e400001", "wrong_answer"},
		{"choice in the question", "Which is larger, Paris or Rome?", nil, []any{"Paris"}, "It is Paris.", ""},
		{"attack: choices of the question", "Which is larger, Paris or Rome?", nil, []any{"Paris"}, "Paris Rome", "several_answers"},
		{"attack: quoted choices", "Which is larger, Paris or Rome?", nil, []any{"Paris"}, "Which is larger, Paris or Rome?", "no_answer"},
		{"twin: quoted choices, answer", "Which is larger, Paris or Rome?", nil, []any{"Paris"}, "Which is larger, Paris or Rome? Paris", ""},
		{"attack: other choices of the question", "Is it red, green or another colour?", nil, []any{"blue"}, "red green blue", "several_answers"},
		{"twin: another choice", "Is it red, green or another colour?", nil, []any{"blue"}, "It is blue.", ""},
		{"yes", "Is it?", nil, []any{"yes"}, "Yes, it is.", ""},
		{"attack: yes and no", "Is it?", nil, []any{"yes"}, "yes and no", "wrong_answer"},
		{"no", "Is it?", nil, []any{"no"}, "No, it is not.", ""},
		{"attack: no and yes", "Is it?", nil, []any{"no"}, "no yes", "several_answers"},
		{"false", "Is that true?", nil, []any{"false"}, "It is false.", ""},
		{"attack: true and false", "Is that so?", nil, []any{"true"}, "true false", "wrong_answer"},
		{"negated answer", "What was the verdict?", nil, []any{"not guilty"}, "The verdict was not guilty.", ""},
		{"attack: negated", "What was the verdict?", nil, []any{"guilty"}, "The verdict was not guilty.", "wrong_answer"},
		{"attack: pronouns", "Who?", nil, []any{"they"}, "he she they", "several_answers"},
		{"twin: pronoun", "Who?", nil, []any{"they"}, "The answer is: they", ""},
		{"attack: letters", "Which?", nil, []any{"b"}, "a b", "several_answers"},
		{"attack: prepositions", "Where?", nil, []any{"under"}, "in on under", "several_answers"},
		{"attack: plus plus", "Which language?", nil, []any{"C"}, "C++", "wrong_answer"},
		{"twin: plus plus", "Which language?", nil, []any{"C++"}, "The language is C++.", ""},
		{"list as the answer", "Which colours?", nil, []any{"red, white and blue"}, "The colours are red, white and blue.", ""},
		{"attack: longer list", "Which colours?", nil, []any{"red, white and blue"}, "red, white and blue, green", "several_answers"},
		{"price", "How much?", nil, []any{"$5"}, "It is $5.", ""},
		{"attack: negative price", "How much?", nil, []any{"$5"}, "-$5", "several_answers"},
		{"date", "When?", nil, []any{"July 4, 1776"}, "It was on July 4, 1776.", ""},
		{"attack: two dates", "When?", nil, []any{"July 4, 1776"}, "July 4, 1776, July 5, 1776", "several_answers"},
		{"name with a number", "Which illness?", nil, []any{"COVID-19"}, "The illness is COVID-19.", ""},
		{"symbol", "Which operator?", nil, []any{"+"}, "+", ""},
		{"attack: symbols", "Which operator?", nil, []any{"+"}, "+ -", "wrong_answer"},
		{"punctuation", "Which sign?", nil, []any{";"}, ";", ""},
		{"chinese", "法国的首都是哪里？", nil, []any{"巴黎"}, "巴黎。", ""},
		{"chinese with lead-in", "法国的首都是哪里？", nil, []any{"巴黎"}, "Answer: 巴黎", ""},
		{"accents", "Who?", nil, []any{"René"}, "Rene\u0301", ""},
		{"attack: accents", "Who?", nil, []any{"René"}, "Rene", "wrong_answer"},
		{"formula h2o", "What is it?", nil, []any{"H2O"}, "It is H₂O.", ""},
		{"number beside a formula", "How much H2O?", nil, []any{42}, "42 ml of H2O", ""},
		{"power", "What is it?", nil, []any{"10^6"}, "10⁶", ""},
		{"attack: power", "What is it?", 0, []any{"106"}, "10⁶", "wrong_answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkText(t, shortTask(t, c.question, c.tolerance, c.accepted...), c.text, c.want)
		})
	}
}

func TestShortAnswerSprays(t *testing.T) {
	for _, c := range []struct {
		task         *compiler.Task
		alternatives []string
	}{
		{shortTask(t, capital, nil, "Paris"), []string{"London", "Paris", "Rome"}},
		{shortTask(t, capital, nil, "Paris"), []string{"London", "Paris"}},
		{shortTask(t, capital, nil, "Paris"), []string{"Answer: London", "Answer: Paris"}},
		{shortTask(t, "Which is larger, Paris or Rome?", nil, "Paris"), []string{"Paris", "Rome"}},
		{shortTask(t, "How many?", nil, 42), []string{"41", "42", "43"}},
		{shortTask(t, "How many?", 0.5, 42), []string{"40", "42", "44"}},
		{shortTask(t, "How many?", 0.5, 42, "forty-two"), []string{"40", "42", "44"}},
		{shortTask(t, "Is it?", nil, "yes"), []string{"yes", "no"}},
	} {
		for _, text := range several(c.alternatives) {
			if v := judgeText(t, c.task, text); v.Reason == "" {
				t.Errorf("%q passes", text)
			}
		}
	}
}

func TestShortAnswerIsLinear(t *testing.T) {
	checkFast(t, shortTask(t, capital, 0.5, "Paris", 42, "a a a a b", "1,000"), shapes()...)
}

func TestShortAnswerKeepsSecrets(t *testing.T) {
	task := shortTask(t, capital, 0.125, "Paris", 4711)
	for _, text := range []string{"Paris", "4711", "London", "London, Paris", "4710.99", "", "1\n4711"} {
		checkNoSecret(t, judgeText(t, task, text), "paris", "4711", "0.125")
	}
}

func FuzzShortAnswer(f *testing.F) {
	f.Add("Paris", "London", "What is the capital?", "The answer is Paris", 0.5)
	f.Add("42", "-42", "How many?", "1e5 1,000 -$5", 0.0)
	f.Add("10²", "½", "?", "١٢٣ a\u0301", 1e300)
	f.Fuzz(func(t *testing.T, right, wrong, question, text string, tolerance float64) {
		task := shortTask(t, question, max(0, min(tolerance, 1e300)), right)
		if task == nil {
			t.Skip()
		}
		judgeText(t, task, text)
		judgeText(t, task, wrong)
		// Any words may stand beside a number, so only another number is an
		// alternative to it.
		if strings.Contains(strings.ToLower(right+question), "zebra") || strings.ContainsAny(right, "725") || tolerance > 1 {
			return
		}
		for _, spray := range []string{right + " or zebra 7251", "zebra 7251, " + right, "Answer: 7251\nAnswer: " + right} {
			if v := judgeText(t, task, spray); v.Reason == "" {
				t.Errorf("%q passes for %q", spray, right)
			}
		}
	})
}
