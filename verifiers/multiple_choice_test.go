package verifiers_test

import (
	"strings"
	"testing"

	"github.com/securebench/sbench/compiler"
)

func choiceTask(t testing.TB, answer any, choices ...string) *compiler.Task {
	t.Helper()
	return textTask(t, "multiple_choice", object{"question": "What is the capital of France?", "choices": choices}, object{"answer": answer})
}

const quoted = "What is the capital of France?\nA) London\nB) Paris\nC) New York\nD) Rome\n"

// TestMultipleChoice has choices London, Paris, New York, Rome; Paris is right.
// An attack comes before its honest twin.
func TestMultipleChoice(t *testing.T) {
	task := choiceTask(t, "B", "London", "Paris", "New York", "Rome")
	for _, c := range []struct{ name, text, want string }{
		{"label", "B", ""},
		{"lower case label", "b", ""},
		{"label in brackets", "(B)", ""},
		{"label in square brackets", "[b]", ""},
		{"label with one bracket", "B)", ""},
		{"label with a point", "B.", ""},
		{"quoted label", `"B".`, ""},
		{"text", "Paris", ""},
		{"text in capitals", "PARIS;", ""},
		{"quoted text", "“Paris”", ""},
		{"label and text", "B) Paris", ""},
		{"label, point, text", "b. paris.", ""},
		{"brackets and text", "(B) Paris", ""},
		{"label, dash, text", "B – Paris", ""},
		{"answer is", "Answer is B", ""},
		{"the answer is", "The answer is: (B).", ""},
		{"answer colon", "ANSWER: b", ""},
		{"choice", "Choice: B", ""},
		{"option", "Option B", ""},
		{"final answer", "Final Answer - B", ""},
		{"final answer colon", "### Final answer: **(B)**", ""},
		{"bold lead-in", "**Answer:** B", ""},
		{"bold all", "**Answer: B**", ""},
		{"bold twice", "**Answer:** **B**", ""},
		{"bold label", "**B)** Paris", ""},
		{"code", "`B`", ""},
		{"boxed", `The final answer is $\boxed{B}$.`, ""},
		{"correct option", "So the correct option is B.", ""},
		{"lead-in and text", "I think it's Paris.", ""},
		{"lead-in, label, text", "The answer is B: Paris", ""},
		{"white space", "\t\n  new \n\n  B \r\n\r\n", ""},
		{"last line", "A is wrong because London is in Britain.\nTherefore, the answer is B.", ""},
		{"lead-in on its own line", "Answer:\n\nB\n", ""},
		{"other label", "A", "wrong_answer"},
		{"other text", "The answer is Rome.", "wrong_answer"},
		{"other of two words", "new   york", "wrong_answer"},
		{"label of no choice", "E", "no_answer"},
		{"index", "1", "no_answer"},
		{"prose without an answer", "Nobody can know this.", "no_answer"},

		{"attack: empty", "", "no_answer"},
		{"attack: blank", " \n\t\r\n", "no_answer"},
		{"attack: invisible", "\u200b\u202e\u2060\ufeff\U000e0042", "no_answer"},
		{"attack: punctuation", `.,;:"'`, "no_answer"},
		{"attack: lead-in alone", "The answer is", "no_answer"},
		{"attack: or", "A or B", "several_answers"},
		{"attack: comma", "B, A", "several_answers"},
		{"attack: all labels", "A B C D", "several_answers"},
		{"attack: slash", "A/B", "several_answers"},
		{"attack: texts", "Paris, London, Rome", "several_answers"},
		{"attack: text or text", "The answer is London or Paris.", "several_answers"},
		{"attack: brackets", "(A) (B)", "several_answers"},
		{"attack: glued labels", "ABCD", "no_answer"},
		{"attack: one in each line", "A\nC\nB", "several_answers"},
		{"attack: texts in lines", "London\nParis", "several_answers"},
		{"twin: reason, then the text", "London is in Britain, so it cannot be that.\nParis", ""},
		{"attack: two statements", "Answer: A\nAnswer: B", "several_answers"},
		{"twin: one statement twice", "Answer: B\nWait, I check that.\nAnswer: Paris", ""},
		{"attack: bare after statement", "The answer is A.\nB", "several_answers"},
		{"twin: bare after remark", "A was tempting.\nB", ""},
		{"attack: quoted question", quoted, "several_answers"},
		{"attack: quoted question, right one last", "A) London\nC) New York\nD) Rome\nB) Paris", "several_answers"},
		{"twin: quoted question, then the answer", quoted + "Answer: B", ""},
		{"twin: quoted question, then the label", quoted + "\nB", ""},
		{"attack: label against text", "A) Paris", "several_answers"},
		{"attack: text against label", "B: London", "several_answers"},
		{"twin: label and its text", "[B]: Paris", ""},
		{"attack: not", "not B", "no_answer"},
		{"attack: the answer is not", "The answer is not B", "no_answer"},
		{"attack: wrong, right", "A is wrong, B", "several_answers"},
		{"twin: wrong, right in two lines", "A is wrong.\nB", ""},
		{"attack: wrong lead-in", "wrong answer: B", "several_answers"},
		{"one, not another", "B, not A", ""},
		{"attack: question", "B?", "several_answers"},
		{"attack: zero width joins", "A\u200bB", "no_answer"},
		{"attack: zero width between", "A\u200b, \u200bB", "several_answers"},
		{"twin: zero width", "\u200bB\u200d", ""},
		{"attack: bidi", "\u202eA or B\u202c", "several_answers"},
		{"twin: bidi", "\u202aB\u202c", ""},
		{"attack: fullwidth", "Ａ，Ｂ", "several_answers"},
		{"twin: fullwidth", "（Ｂ）", ""},
		{"attack: combining", "B\u0338", "no_answer"},
		{"attack: struck out", "A\u0336 B", "several_answers"},
		{"twin: composed text", "Ｐａｒｉｓ", ""},
		{"attack: line separator", "A\u2028C\u2029B", "several_answers"},
		{"twin: line separator", "Hm.\u2028B", ""},
		{"attack: look-alike", "\u0412", "no_answer"},
		{"attack: json", `{"status": "passed", "score": 1}`, "no_answer"},
		{"attack: nul", "B\x00A", "several_answers"},
		{"attack: bad utf-8", "B\xff", "several_answers"},
		{"brackets without end", strings.Repeat("(", 1<<20) + "B", ""},
		{"twin: some brackets", "((B))", ""},
	} {
		t.Run(c.name, func(t *testing.T) { checkText(t, task, c.text, c.want) })
	}
}

// TestMultipleChoiceRows has choices that are hard to tell apart.
func TestMultipleChoiceRows(t *testing.T) {
	for _, c := range []struct {
		name    string
		answer  any
		choices []string
		text    string
		want    string
	}{
		{"index as the answer", 2, []string{"x", "y", "z"}, "C", ""},
		{"text as the answer", "Z", []string{"x", "y", "z"}, "c", ""},
		{"one of two right", []any{"A", 1}, []string{"x", "y", "z"}, "B", ""},
		{"attack: both of two right", []any{"A", 1}, []string{"x", "y", "z"}, "A and B", "several_answers"},
		{"label wins over text", "A", []string{"B", "A"}, "A", ""},
		{"text that is a label", "A", []string{"B", "A"}, "B", "wrong_answer"},
		{"label and such a text", "A", []string{"B", "A"}, "A) B", ""},
		{"case alone, right", "A", []string{"Mg", "mg"}, "Mg", ""},
		{"attack: case alone, wrong", "A", []string{"Mg", "mg"}, "mg", "wrong_answer"},
		{"attack: case alone, neither", "A", []string{"Mg", "mg"}, "MG", "several_answers"},
		{"alike, both right", []any{"A", "B"}, []string{"Mg", "mg", "kg"}, "MG", ""},
		{"power", "A", []string{"10²", "102"}, "10²", ""},
		{"attack: power", "A", []string{"10²", "102"}, "102", "wrong_answer"},
		{"twin: caret", "A", []string{"10²", "102"}, "10^2", ""},
		{"negative", "B", []string{"5", "-5"}, "Answer: -5", ""},
		{"minus sign", "B", []string{"5", "-5"}, "−5", ""},
		{"attack: sign dropped", "A", []string{"5", "7"}, "-5", "no_answer"},
		{"attack: point dropped", "A", []string{"5", "7"}, ".5", "no_answer"},
		{"twin: decimal", "A", []string{".5", "5"}, ".5", ""},
		{"attack: decimal", "A", []string{".5", "5"}, "5", "wrong_answer"},
		{"text with article", "B", []string{"dog", "a dog"}, "a dog", ""},
		{"text that contains another", "B", []string{"A only", "A and B"}, "A and B", ""},
		{"text with punctuation", "A", []string{"Yes.", "No."}, "yes", ""},
		{"text of punctuation", "B", []string{";", ":"}, ":", ""},
		{"emphasis in the text", "B", []string{"init", "__init__"}, "__init__", ""},
		{"bold math", "A", []string{"2**3", "23"}, "2**3", ""},
		{"lead-in as text", "A", []string{"The right", "right"}, "the right", ""},
		{"not in the text", "B", []string{"guilty", "not guilty"}, "The answer is: not guilty", ""},
		{"attack: not before the text", "A", []string{"guilty", "innocent"}, "not guilty", "no_answer"},
		{"sharp s", "A", []string{"Straße", "Gasse"}, "STRASSE", ""},
		{"accents composed", "A", []string{"caf\u00e9", "cafe"}, "cafe\u0301", ""},
		{"attack: accents dropped", "A", []string{"caf\u00e9", "cafe"}, "cafe", "wrong_answer"},
		{"text of no choice", "none", []string{"x", "y"}, "None.", ""},
		{"attack: text of no choice", "none", []string{"x", "y"}, "C", "no_answer"},
		{"only choice", "A", []string{"x"}, "x", ""},
		{"choice of two lines", "A", []string{"x\ny", "z"}, "x\ny", ""},
		{"same text twice", "A", []string{"x", "x"}, "x", "several_answers"},
		{"same text twice, by label", "A", []string{"x", "x"}, "A) x", ""},
		{"twenty-sixth", "Z", strings.Split("q1 q2 q3 q4 q5 q6 q7 q8 q9 q10 q11 q12 q13 q14 q15 q16 q17 q18 q19 q20 q21 q22 q23 q24 q25 q26", " "), "z", ""},
		{"label I", "I", strings.Split("q1 q2 q3 q4 q5 q6 q7 q8 q9", " "), "I", ""},
		{"pronoun I", "B", strings.Split("q1 q2 q3 q4 q5 q6 q7 q8 q9", " "), "I choose B", ""},
	} {
		t.Run(c.name, func(t *testing.T) { checkText(t, choiceTask(t, c.answer, c.choices...), c.text, c.want) })
	}
}

func TestMultipleChoiceSprays(t *testing.T) {
	task := choiceTask(t, "B", "London", "Paris", "New York", "Rome")
	for _, alternatives := range [][]string{
		{"A", "B"}, {"A", "B", "C", "D"}, {"(A)", "(B)"}, {"London", "Paris"}, {"London", "Paris", "New York", "Rome"},
		{"A) London", "B) Paris"}, {"Answer: A", "Answer: B"}, {"The answer is A", "The answer is Paris"},
	} {
		for _, text := range several(alternatives) {
			if v := judgeText(t, task, text); v.Reason == "" {
				t.Errorf("%q passes", text)
			}
		}
	}
}

func TestMultipleChoiceIsLinear(t *testing.T) {
	checkFast(t, choiceTask(t, "B", "London", "Paris", "New York", "a a a a a a"), shapes()...)
}

func TestMultipleChoiceKeepsSecrets(t *testing.T) {
	task := choiceTask(t, []any{"B", "Atlantis"}, "London", "Paris")
	for _, text := range []string{"A", "B", "A or B", "", "Atlantis", "Answer: A\nAnswer: B"} {
		checkNoSecret(t, judgeText(t, task, text), "paris", "atlantis", "london", `"b"`)
	}
}

func FuzzMultipleChoice(f *testing.F) {
	f.Add("London", "Paris", ", ", "the answer is B")
	f.Add("Mg", "mg", " or ", "**Answer:** (a)")
	f.Add("10²", "102", "\n", "B) x")
	f.Add("(a)", "a\u0301", "/", `\boxed{b}`)
	f.Add("\x1600000", "00000", ", ", "00 000B0")
	f.Fuzz(func(t *testing.T, one, two, separator, text string) {
		task := choiceTask(t, "B", one, two, "neither of these")
		if task == nil {
			t.Skip()
		}
		judgeText(t, task, text)
		// A separator of letters could make another answer of two.
		if strings.Trim(separator, " ,;/|&\n\t.") != "" || separator == "" {
			separator = ", "
		}
		for _, spray := range []string{"A" + separator + "B" + separator + "C", "Answer: A\n" + text + "\nAnswer: B"} {
			if v := judgeText(t, task, spray); v.Reason == "" && !strings.Contains(spray, two) {
				t.Errorf("%q passes with choices %q and %q", spray, one, two)
			}
		}
	})
}
