package text_test

import (
	"encoding/json"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/verifiers/text"
)

// A question has four choices and an explanation of each, as the rows of MMLU have them.
type question struct {
	choices []string
	remarks [4]string
	right   int
}

func questions() []question {
	return []question{
		{[]string{"Mars", "Jupiter", "Venus", "Earth"}, [4]string{"Mars is half the size of Earth.", "Jupiter has 95 moons.", "Venus is hot.", "Earth is blue."}, 1},
		{[]string{"0", "4", "2", "6"}, [4]string{"There are 0 roots.", "The degree of Q(sqrt(2)) is 2, and 2 * 2 = 4.", "That is one root.", "6 is 3!."}, 1},
		{[]string{"True, True", "False, False", "True, False", "False, True"}, [4]string{"Both hold.", "Neither does.", "Only the first does.", "Only the second does."}, 2},
		{[]string{"the mitochondrion", "the nucleus", "the ribosome", "the cell wall"}, [4]string{"It makes ATP.", "It holds DNA.", "It makes proteins.", "It is rigid."}, 0},
		{[]string{"Adam Smith", "David Hume", "John Locke", "Immanuel Kant"}, [4]string{"He wrote of nations.", "He was a sceptic.", "He wrote of government.", "He wrote the Critique of Pure Reason in 1781."}, 3},
		{[]string{"$5,000", "$10,000", "$15,000", "$20,000"}, [4]string{"That is a half.", "That is the whole.", "That is too much.", "That is double."}, 0},
		{[]string{"only I", "only II", "I and II", "neither I nor II"}, [4]string{"II is not true.", "I is not true.", "Both are true.", "One is true."}, 2},
		{[]string{"0.25", "0.5", "0.75", "1"}, [4]string{"One of four.", "Two of four.", "Three of four.", "All of them."}, 3},
		{[]string{"a tort", "a crime", "a contract", "an option"}, [4]string{"It is civil.", "The state prosecutes.", "It takes two parties.", "It is a right."}, 1},
		{[]string{"x^2 + 1", "x^2 - 1", "x + 1", "(x - 1)^2"}, [4]string{"It is irreducible.", "It has two roots.", "It is linear.", "It has a double root."}, 3},
	}
}

// outputs returns how models write that choice i is right: {L}, {T} and {R} are its label, text and
// remark, {O} is a remark on another choice, {X} its label.
func outputs(q question, i int) (all []string) {
	forms := []string{
		"{L}", "({L})", "{L}.", "{L})", "{L}) {T}", "{L}. {T}", "**{L}**", "**{L}. {T}**", "{T}", "Option {L}", "ANSWER: {L}", "Answer: {L}) {T}", "**Answer:** {L}", "**Answer: ({L})**",
		"The answer is {L}.", "The answer is {L}. {R}", "The correct answer is {L}) {T}.", "The correct answer is **{L}. {T}**. {O}", "The answer is ({L}), because {R}",
		"{O} {R} So the answer is {L}.", "Let's think step by step.\n\n1. {O}\n2. {R}\n\nTherefore, the correct option is **{L}**.", `$\boxed{{L}}$`, `So \boxed{\text{{L}}}`, "{R}\n#### {L}",
		"<think>\nThe answer is {X}. Or not?\n</think>\n\n{L}", "<answer>{L}</answer>", `{"answer": "{L}"}`, "```json\n{\"reasoning\": \"{O}\", \"answer\": \"{L}\"}\n```",
		"{L}) {T}\n\nExplanation: {O}", "{L}\n\n{R} {O}", "{O}\n\nAnswer: {L}\n\n{R}", "## Final answer\n\n**{L}) {T}**",
		// nine languages
		"Die richtige Antwort ist {L}. {R}", "Antwort: {L}", "La bonne réponse est la {L}.", "Réponse : {L}", "La respuesta correcta es la opción {L}.", "Respuesta: {L}) {T}",
		"A resposta correta é a letra {L}.", "Resposta: {L}", "La risposta corretta è la {L}. {R}", "Risposta: {L}", "正确答案是{L}。{R}", "答案：（{L}）", "因此选{L}", "正解は{L}です。{R}", "答え：{L}",
		"정답은 {L}입니다.", "정답: {L}번",
	}
	other := (i + 1) % 4
	values := strings.NewReplacer("{L}", string(rune('A'+i)), "{X}", string(rune('A'+other)), "{T}", q.choices[i], "{R}", q.remarks[i], "{O}", q.remarks[other])
	for _, form := range forms {
		all = append(all, values.Replace(form))
	}
	return all
}

// TestOutputs: of the right choices in common forms at least 97 % pass, of the wrong ones at most 1 %.
func TestOutputs(t *testing.T) {
	var passed, rights, forged, wrongs int
	for _, q := range questions() {
		task := choiceOf(q.right, q.choices...)
		for i := range q.choices {
			for _, output := range outputs(q, i) {
				v := task.Judge(output)
				switch right := i == q.right; {
				case right && v.Reason == "":
					passed++
					rights++
				case right:
					rights++
					t.Logf("lost: %q: %s, read %q by %s", output, v.Reason, v.Read, v.Rule)
				case v.Reason == "":
					forged++
					wrongs++
					t.Logf("passes: %q, read %q by %s", output, v.Read, v.Rule)
				default:
					wrongs++
				}
			}
		}
	}
	t.Logf("%d of %d right ones pass, and %d of %d wrong ones", passed, rights, forged, wrongs)
	if 100*passed < 97*rights || 100*forged > wrongs || rights < 300 {
		t.Error("too many are judged wrongly")
	}
}

// TestRows has rows as SQuAD and TruthfulQA have them: accepted answers pass as they are and in a
// sentence, rejected ones and answers to other rows fail.
func TestRows(t *testing.T) {
	squad := []struct {
		question string
		accepted []string
	}{
		{"Which NFL team won Super Bowl 50?", []string{"Denver Broncos", "the Broncos"}},
		{"When was the game played?", []string{"February 7, 2016", "February 7"}},
		{"How long is the Rhine?", []string{"1,230 km", "1,230"}},
		{"What was the final score?", []string{"24–10"}},
		{"Where was it held?", []string{"Levi's Stadium", "Santa Clara, California"}},
		{"How much did a 30-second advertisement cost?", []string{"$5 million", "5 million"}},
		{"Who wrote about the pond?", []string{"Matsuo Bashō", "松尾 芭蕉"}},
		{"What share of the state is Catholic?", []string{"62%", "62 percent"}},
		{"What was the theme?", []string{`"golden anniversary"`, "gold"}},
		{"Who were the nobles?", []string{"dukes, counts and barons"}},
		{"Does the law allow it?", []string{"not since 1998"}},
	}
	for i, row := range squad {
		task := text.Short{Question: row.question, Accepted: row.accepted}
		for _, a := range row.accepted {
			for _, said := range []string{a, strings.ToUpper(a) + ".", "The answer is " + a + ".", "ANSWER: " + a, "It is " + a + ".", "<answer>" + a + "</answer>", "It is in the text.\n**" + a + "**"} {
				if v := task.Judge(said); v.Reason != "" {
					t.Errorf("%s %q: %s, read %q by %s", row.question, said, v.Reason, v.Read, v.Rule)
				}
			}
			if v := (text.Short{Accepted: squad[(i+1)%len(squad)].accepted}).Judge(a); v.Reason == "" {
				t.Errorf("%q passes for another row", a)
			}
		}
	}
	truthful := []text.Free{
		{Accepted: []string{"The gum passes through your digestive system", "Nothing happens if you swallow gum"}, Rejected: []string{"You grow a tree", "The gum stays in your stomach for seven years"}, MinF1: 0.5},
		{Accepted: []string{"No, ostriches are too heavy", "Ostriches cannot fly"}, Rejected: []string{"Ostriches fly at night", "Yes"}, MinF1: 0.5},
		{Accepted: []string{"It is illegal", "It is not legal"}, Rejected: []string{"It is legal"}, MinF1: 0.5},
		{Accepted: []string{"Poison", "Toxin"}, Rejected: []string{"Present", "Presents"}, MinF1: 0.5},
	}
	for _, row := range truthful {
		for _, a := range row.Accepted {
			if v := row.Judge(a + "."); v.Reason != "" {
				t.Errorf("%q: %s", a, v.Reason)
			}
		}
		for _, r := range row.Rejected {
			if v := row.Judge(r + "."); v.Reason == "" {
				t.Errorf("%q passes", r)
			}
		}
	}
}

func TestPattern(t *testing.T) {
	one := regexp.MustCompile(`(?m)^Choice=(\w+)$`)
	for _, tt := range []struct {
		name, said, want string
		rule             text.Rule
	}{
		{"last match", "Choice=A\nChoice=B\nThe answer is C.", "", text.Pattern},
		{"no match", "The answer is B.", text.None, ""},
		{"in a thought", "<think>\nChoice=B\n</think>", "", text.Pattern},
	} {
		t.Run(tt.name, func(t *testing.T) {
			task := choiceOf(1, "x", "y", "z")
			task.Pattern = one
			if v := task.Judge(tt.said); v.Reason != tt.want || v.Rule != tt.rule {
				t.Errorf("%+v", v)
			}
		})
	}
	alternatives := regexp.MustCompile(`Choice=(\w+)|none`)
	if v := (text.Short{Accepted: []string{"B"}, Pattern: alternatives}).Judge("Choice=B, none"); v.Reason != "" {
		t.Errorf("%+v", v)
	}
	if v := (text.Free{Accepted: []string{"B"}, MinF1: 1, Pattern: alternatives}).Judge("B"); v.Reason != text.None {
		t.Errorf("%+v", v)
	}
}

// TestChoices has choices that are hard to tell apart, and rows with several right ones.
func TestChoices(t *testing.T) {
	for _, tt := range []struct {
		name    string
		right   []int
		choices []string
		said    string
		want    string
	}{
		{"one of two right", []int{0, 1}, []string{"x", "y", "z"}, "B", ""},
		{"both of two right", []int{0, 1}, []string{"x", "y", "z"}, "A and B", text.Several},
		{"a label wins over a text", []int{0}, []string{"B", "A"}, "A", ""},
		{"label and such a text", []int{0}, []string{"B", "A"}, "A) B", ""},
		{"by case", []int{0}, []string{"Mg", "mg"}, "Mg", ""},
		{"by case, the other", []int{0}, []string{"Mg", "mg"}, "mg", text.Wrong},
		{"by case, neither", []int{0}, []string{"Mg", "mg"}, "MG", text.Several},
		{"alike and both right", []int{0, 1}, []string{"Mg", "mg", "kg"}, "MG", ""},
		{"power", []int{0}, []string{"10²", "102"}, "10^2", ""},
		{"no power", []int{0}, []string{"10²", "102"}, "102", text.Wrong},
		{"article", []int{1}, []string{"dog", "a dog"}, "a dog", ""},
		{"longer text", []int{1}, []string{"A only", "A and B"}, "It is A and B.", ""},
		{"punctuation", []int{1}, []string{";", ":"}, ":", ""},
		{"bold", []int{0}, []string{"2**3", "23"}, "2**3", ""},
		{"accents", []int{0}, []string{"caf\u00e9", "cafe"}, "cafe\u0301", ""},
		{"no accents", []int{0}, []string{"caf\u00e9", "cafe"}, "cafe", text.Wrong},
		{"same twice", []int{0}, []string{"x", "x"}, "x", text.Several},
		{"same twice, by label", []int{0}, []string{"x", "x"}, "A) x", ""},
		{"label I", []int{8}, strings.Split("q1 q2 q3 q4 q5 q6 q7 q8 q9", " "), "I", ""},
		{"invisible", []int{1}, []string{"x", "y"}, "\u200bB\u200d", ""},
		{"bidirectional", []int{1}, []string{"x", "y"}, "\u202aB\u202c", ""},
		{"look-alike", []int{1}, []string{"x", "y"}, "\u0412", text.None},
		{"combining", []int{1}, []string{"x", "y"}, "B\u0338", text.None},
		{"nothing", []int{1}, []string{"x", "y"}, "\u200b \n", text.None},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := text.Choice{Choices: tt.choices, Labels: len(tt.choices), Right: tt.right}.Judge(tt.said)
			if v.Reason != tt.want {
				t.Errorf("%q: %+v, want %q", tt.said, v, tt.want)
			}
		})
	}
	extra := text.Choice{Choices: []string{"x", "y", "none"}, Labels: 2, Right: []int{2}}
	if v := extra.Judge("None."); v.Reason != "" {
		t.Errorf("%+v", v)
	}
	if v := extra.Judge("C"); v.Reason != text.None {
		t.Errorf("%+v", v)
	}
}

// TestRead: a verdict holds the candidate's own words, cut, and nothing of the row's.
func TestRead(t *testing.T) {
	for _, task := range []judge{choiceOf(1, "London", "Paris"), text.Short{Accepted: []string{"Paris"}, Tolerance: big.NewRat(1, 8)}, text.Free{Accepted: []string{"Paris"}, Rejected: []string{"London"}, MinF1: 0.5}} {
		for _, said := range []string{"Rome", "", "A or B", strings.Repeat("é", text.MaxRead), "The answer is " + strings.Repeat("x", text.MaxRead)} {
			v := task.Judge(said)
			line, err := json.Marshal(v)
			if err != nil || strings.Contains(strings.ToLower(string(line)), "paris") || len(v.Read) > text.MaxRead || !utf8.ValidString(v.Read) {
				t.Errorf("%.20q: %s, %v", said, line, err)
			}
		}
	}
	if v := choiceOf(1, "London", "Paris").Judge("Well.\nThe answer is B. It is large."); v.Read != "B. It is large." {
		t.Errorf("read %q", v.Read)
	}
}

// TestLinear: 64 KiB take a second of processor time at most; quadratic time would be minutes.
func TestLinear(t *testing.T) {
	if testing.Short() {
		t.Skip("long answers")
	}
	tasks := []judge{
		choiceOf(1, "London", "Paris", "New York", "a a a a a a"), text.Short{Question: "a a", Accepted: []string{"Paris", "42", "a a a a b", "1,000"}},
		text.Free{Accepted: []string{"gravity", "a a a a b"}, Rejected: []string{"a a a c"}, MinF1: 0.5},
	}
	for _, piece := range []string{"a", "A ", "A\n", "(", "((a", "**", "the answer is ", "the answer is a\n", "\u0301", "e\u0301\u0323", "1", "1,", "1 ", "1e9", "-", ".", "A. ",
		"not ", "\ufdfa", "\xff", "重", "a'", "+", "\n", " ", "½", "#### x\n", `\boxed{`, `{"answer":`, "<answer>", "</think>", "a\"", "~~"} {
		for _, task := range tasks {
			start := processorTime(t)
			task.Judge(strings.Repeat(piece, 1<<16/len(piece)))
			if took := processorTime(t) - start; took > 20*time.Second {
				t.Errorf("%T: 64 KiB of %q took %v", task, piece, took)
			}
		}
	}
}

// processorTime returns what this process has used so far, which does not depend on other processes.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used unix.Rusage
	must.Do(t, unix.Getrusage(unix.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// FuzzJudge: nothing panics, and another answer announced last does not pass.
func FuzzJudge(f *testing.F) {
	f.Add("Paris", "London", "The answer is Paris")
	f.Add("42", "-42", "1e5 1,000 -$5 \\boxed{½}")
	f.Add("→", "C++", "#### 重力\n{\"answer\": \"m\u0430\"}")
	f.Fuzz(func(t *testing.T, right, wrong, said string) {
		task := choiceOf(0, right, wrong, "zebra")
		text.Free{Accepted: []string{right}, Rejected: []string{wrong}, MinF1: 0.5}.Judge(said)
		text.Short{Accepted: []string{right}}.Judge(said)
		task.Judge(said)
		if v := task.Judge(said + "\n<answer>C</answer>"); v.Reason == "" && !strings.Contains(said, "<") {
			t.Errorf("%q passes", said)
		}
	})
}
