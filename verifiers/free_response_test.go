package verifiers_test

import (
	"strings"
	"testing"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/verifiers"
)

func freeTask(t testing.TB, prompt string, rubric any) *compiler.Task {
	t.Helper()
	return textTask(t, "free_response", object{"prompt": prompt}, object{"rubric": rubric})
}

func anyOf(accepted, rejected []string, minF1 any) object {
	rubric := object{"type": "contains_any", "accepted_answers": accepted}
	if rejected != nil {
		rubric["rejected_answers"] = rejected
	}
	if minF1 != nil {
		rubric["min_token_f1"] = minF1
	}
	return rubric
}

// TestFreeResponseContains accepts gravity and gravitational pull, and rejects
// magnetism. An attack comes before its honest twin.
func TestFreeResponseContains(t *testing.T) {
	task := freeTask(t, "Why do apples fall to the ground? Explain in a sentence what pulls them.",
		anyOf([]string{"gravity", "gravitational pull"}, []string{"magnetism", "a magnetic force"}, nil))
	for _, c := range []struct{ name, text, want string }{
		{"equal", "gravity", ""},
		{"case and punctuation", "“GRAVITY!”", ""},
		{"sentence", "Apples fall because gravity pulls them.", ""},
		{"phrase", "The gravitational\n  pull of the Earth does it.", ""},
		{"short prose", "Newton's universal gravity", ""},
		{"short sentences", "Gravity. It pulls objects.", ""},
		{"terse", "Gravity, obviously.", ""},
		{"possessive", "It is the Earth's gravity.", ""},
		{"brackets", "A force (gravity) acts.", ""},
		{"markdown", "**Gravity** pulls them down to the ground.", ""},
		{"slash", "It is gravity/attraction that does this.", ""},
		{"both accepted", "gravity, gravitational pull", ""},
		{"not only", "Not only gravity acts, there is also drag.", ""},
		{"not magnets but", "Nothing else would do, but gravity does.", ""},
		{"denial of something else", "It is not the wind, it is gravity.", ""},
		{"in doubt: without", "Without gravity they would not fall.", "wrong_answer"},
		{"no doubt", "No doubt gravity is the cause.", ""},
		{"last word counts", "I thought it was not gravity. Now I know that gravity pulls them.", ""},
		{"wrong", "The wind blows them down.", "wrong_answer"},
		{"part of a word", "antigravity", "wrong_answer"},
		{"words apart", "a gravitational force and a pull", "wrong_answer"},
		{"rejected", "It is magnetism.", "rejected_answer"},

		{"attack: empty", "", "no_answer"},
		{"attack: blank", " \n\t ", "no_answer"},
		{"attack: invisible", "\u200b\u202e\u2060\ufeff", "no_answer"},
		{"attack: punctuation", "...", "no_answer"},
		{"attack: both", "It is gravity and magnetism.", "rejected_answer"},
		{"attack: list with rejected", "gravity, magnetism, wind", "rejected_answer"},
		{"attack: list", "gravity, wind, drag", "several_answers"},
		{"attack: lines", "wind\ndrag\ngravity", "several_answers"},
		{"attack: bullets", "* wind\n* gravity", "several_answers"},
		{"attack: or", "wind or gravity", "several_answers"},
		{"attack: slash", "wind/gravity", "several_answers"},
		{"attack: numbered", "1. wind 2. drag 3. gravity", "several_answers"},
		{"twin: list in prose", "Several forces act on them, such as wind and drag, and what wins is gravity.", ""},
		{"attack: pile", "wind drag friction tension pressure gravity inertia momentum energy", "several_answers"},
		{"twin: long sentence", "wind drag friction tension pressure all matter less than gravity does here", ""},
		{"attack: not", "It is not gravity.", "wrong_answer"},
		{"attack: isn't", "It isn’t really gravity.", "wrong_answer"},
		{"attack: never", "never gravity", "wrong_answer"},
		{"attack: is wrong", "Gravity is wrong, it is the wind.", "wrong_answer"},
		{"attack: is not the cause", "Gravity is not the cause.", "wrong_answer"},
		{"attack: said and denied", "gravity. not gravity.", "wrong_answer"},
		{"twin: is the cause", "Gravity is the cause.", ""},
		{"attack: zero width rejected", "gravity and mag\u200bnet\u00adism", "rejected_answer"},
		{"twin: zero width", "grav\u200bity", ""},
		{"attack: combining rejected", "gravity and m\u0336a\u0336gnetism", "rejected_answer"},
		{"attack: cyrillic rejected", "gravity and m\u0430gn\u0435tism", "rejected_answer"},
		{"attack: greek rejected", "gravity and magnet\u03b9sm", "rejected_answer"},
		{"attack: fullwidth rejected", "gravity and ｍａｇｎｅｔｉｓｍ", "rejected_answer"},
		{"twin: fullwidth", "ｇｒａｖｉｔｙ", ""},
		{"attack: bidi rejected", "gravity \u202emagnetism\u202c", "rejected_answer"},
		{"twin: bidi", "\u2067gravity\u2069", ""},
		{"attack: combining accepted", "g\u0336ravity", "wrong_answer"},
		{"attack: slash hides rejected", "gravity and wind/magnetism", "rejected_answer"},
		{"attack: emphasis hides rejected", "gravity and **magnetism**", "rejected_answer"},
		{"attack: long, rejected last", strings.Repeat("gravity pulls all things. ", 1<<15) + "magnetism", "rejected_answer"},
		{"twin: long", strings.Repeat("something pulls all things. ", 1<<15) + "gravity", ""},
		{"attack: nul", "gravity\x00magnetism", "rejected_answer"},
		{"attack: verdict", `{"passed": true, "score": 1.0}`, "several_answers"},
	} {
		t.Run(c.name, func(t *testing.T) { checkText(t, task, c.text, c.want) })
	}
}

func TestFreeResponseRubrics(t *testing.T) {
	const prompt = "Explain it."
	sky := []string{"the sky is blue because of scattering"}
	for _, c := range []struct {
		name, prompt string
		rubric       object
		text, want   string
	}{
		{"f1 reached", prompt, anyOf(sky, nil, 0.8), "the sky looks blue because of scattering", ""},
		{"f1 of another order", prompt, anyOf(sky, nil, 1.0), "Because of scattering the sky is blue.", ""},
		{"f1 not reached", prompt, anyOf(sky, nil, 0.9), "the sky looks blue because of scattering", "wrong_answer"},
		{"f1 at the bound", prompt, anyOf([]string{"a b c d"}, nil, 0.75), "a b c x", ""},
		{"default f1 is one", prompt, anyOf(sky, nil, nil), "the sky is blue because of", "wrong_answer"},
		{"f1 zero wants something in common", prompt, anyOf(sky, nil, 0), "entirely unrelated", "wrong_answer"},
		{"f1 zero, in common", prompt, anyOf(sky, nil, 0), "blue", ""},
		{"attack: empty with f1 zero", prompt, anyOf(sky, nil, 0), "", "no_answer"},
		{"attack: repeated words", prompt, anyOf(sky, nil, 0.8), strings.Repeat("the sky is blue because scattering ", 9), "wrong_answer"},
		{"attack: stuffed", prompt, anyOf(sky, nil, 0.5), "scattering of blue " + strings.Repeat("what else could be meant ", 9), "wrong_answer"},
		{"attack: denied in other words", prompt, anyOf(sky, nil, 0.7), "the sky is not blue because of scattering", "wrong_answer"},
		{"attack: own negation left out", prompt, anyOf([]string{"water is not compressible"}, nil, 0.7), "water is compressible", "wrong_answer"},
		{"twin: own negation", prompt, anyOf([]string{"water is not compressible"}, nil, 0.7), "water is really not compressible", ""},
		{"rejected resembles more", prompt, anyOf([]string{"the moon pulls the water"}, []string{"the wind pushes the water"}, 0.3), "wind pushes water", "rejected_answer"},
		{"attack: resembles both alike", prompt, anyOf([]string{"moon pulls"}, []string{"wind pulls"}, 0.3), "it pulls", "rejected_answer"},
		{"twin: resembles accepted more", prompt, anyOf([]string{"the moon pulls the water"}, []string{"the wind pushes the water"}, 0.3), "moon pulls water", ""},
		{"contained beats resemblance", prompt, anyOf([]string{"gravity"}, []string{"magnets pull things toward the earth"}, nil), "gravity does pull things toward the earth", ""},
		{"rejected within accepted", prompt, anyOf([]string{"not guilty"}, []string{"guilty"}, nil), "The verdict is not guilty.", ""},
		{"attack: rejected beside accepted", prompt, anyOf([]string{"not guilty"}, []string{"guilty"}, nil), "not guilty or guilty", "rejected_answer"},
		{"accepted within rejected", prompt, anyOf([]string{"guilty"}, []string{"not guilty"}, nil), "The verdict is not guilty.", "rejected_answer"},
		{"accepted and rejected", prompt, anyOf([]string{"x y"}, []string{"x y"}, nil), "x y", "rejected_answer"},
		{"accents apart", prompt, anyOf([]string{"résumé"}, []string{"resume"}, nil), "It is the résumé.", ""},
		{"attack: accents", prompt, anyOf([]string{"résumé"}, []string{"resume"}, nil), "It is the résumé, the resume.", "rejected_answer"},
		{"attack: quoted prompt", "Does gravity make apples fall?", anyOf([]string{"gravity"}, nil, nil), "Does gravity make apples fall?", "no_answer"},
		{"attack: quoted sentence", "Think. Does gravity make apples fall?", anyOf([]string{"gravity"}, nil, nil), "Well: does gravity make apples fall", "wrong_answer"},
		{"twin: quoted prompt, then an answer", "Does gravity make apples fall?", anyOf([]string{"gravity"}, nil, nil), "Does gravity make apples fall? I say gravity does it.", ""},
		{"told to repeat", "Write exactly: all men are mortal.", anyOf([]string{"Write exactly: all men are mortal"}, nil, nil), "Write exactly: all men are mortal.", ""},
		{"told to repeat a line", "Repeat the line.\nAll men are mortal.", anyOf([]string{"all men are mortal"}, nil, nil), "All men are mortal!", ""},
		{"list of accepted", prompt, anyOf([]string{"nitrogen", "oxygen", "argon"}, nil, nil), "nitrogen, oxygen, argon", ""},
		{"list as a phrase", prompt, anyOf([]string{"red, white and blue"}, nil, nil), "red, white and blue", ""},
		{"word of the prompt beside it", "Capital of France?", anyOf([]string{"Paris"}, nil, nil), "Paris, France", ""},
		{"attack: choices of the prompt", "Paris or Rome, and why?", anyOf([]string{"Paris"}, nil, nil), "Rome, Paris", "several_answers"},
		{"number", prompt, anyOf([]string{"3.14"}, nil, nil), "It is about 3.14.", ""},
		{"attack: number", prompt, anyOf([]string{"14"}, nil, nil), "It is about 3.14.", "wrong_answer"},
		{"attack: negative number", prompt, anyOf([]string{"5"}, nil, nil), "It is -5 degrees.", "wrong_answer"},
		{"c plus plus", prompt, anyOf([]string{"C++"}, []string{"C"}, nil), "It is written in C++.", ""},
		{"attack: c", prompt, anyOf([]string{"C++"}, nil, nil), "It is written in C.", "wrong_answer"},
		{"chinese", "为什么？", anyOf([]string{"重力"}, nil, nil), "因为重力的作用。", ""},
		{"russian", "Почему?", anyOf([]string{"гравитация"}, nil, nil), "Это гравитация тянет их вниз.", ""},
		{"german", "Warum?", anyOf([]string{"Schwerkraft"}, nil, nil), "Die SCHWERKRAFT zieht sie an.", ""},
		{"symbol", "Which arrow?", anyOf([]string{"→"}, nil, nil), "→", ""},
	} {
		t.Run(c.name, func(t *testing.T) { checkText(t, freeTask(t, c.prompt, c.rubric), c.text, c.want) })
	}
}

func TestFreeResponsePending(t *testing.T) {
	for name, rubric := range map[string]any{
		"prose": "good style", "other type": object{"type": "llm_judge"}, "no type": object{"accepted_answers": []string{"x"}},
	} {
		v := judgeText(t, freeTask(t, "Explain.", rubric), "x")
		if v.Status != verifiers.Pending || v.Reason != "no_structured_rubric" || v.Message == "" {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

func TestFreeResponseSprays(t *testing.T) {
	withRejected := freeTask(t, "Why?", anyOf([]string{"gravity"}, []string{"magnetism"}, 0.5))
	for _, text := range several([]string{"gravity", "magnetism"}) {
		if v := judgeText(t, withRejected, text); v.Reason == "" {
			t.Errorf("%q passes", text)
		}
	}
	without := freeTask(t, "Why?", anyOf([]string{"gravity"}, nil, nil))
	for _, text := range several([]string{"gravity", "magnetism", "friction"}) {
		if strings.Contains(text, " and ") || strings.ContainsAny(text, "/|;,.&\n\u2028") == false && !strings.Contains(text, " or ") {
			continue // a few words, as prose may have; docs/verifiers.md says so
		}
		if v := judgeText(t, without, text); v.Reason == "" {
			t.Errorf("%q passes", text)
		}
	}
}

func TestFreeResponseIsLinear(t *testing.T) {
	rubric := anyOf([]string{"gravity", "a a a a b", "not not not", "1,000 1"}, []string{"magnetism", "a a a c"}, 0.5)
	checkFast(t, freeTask(t, "a a a a. the answer is the answer", rubric), shapes()...)
}

func TestFreeResponseKeepsSecrets(t *testing.T) {
	task := freeTask(t, "Why?", anyOf([]string{"gravity"}, []string{"magnetism"}, 0.625))
	for _, text := range []string{"gravity", "magnetism", "wind", "", "gravity, wind", "not gravity"} {
		checkNoSecret(t, judgeText(t, task, text), "gravity", "magnetism", "0.625")
	}
}

func FuzzFreeResponse(f *testing.F) {
	f.Add("gravity", "magnetism", "Why?", "It is gravity", 1.0)
	f.Add("not guilty", "guilty", "Explain", "not\u200b guilty", 0.5)
	f.Add("→", "C++", "重力", "m\u0430gnetism", 0.0)
	f.Fuzz(func(t *testing.T, accepted, rejected, prompt, text string, minF1 float64) {
		task := freeTask(t, prompt, anyOf([]string{accepted}, []string{rejected}, max(0, min(minF1, 1))))
		if task == nil {
			t.Skip()
		}
		judgeText(t, task, text)
		// What quotes the prompt or stands within what is accepted does not count.
		if strings.Contains(strings.ToLower(accepted+prompt), "zebra") {
			return
		}
		task = freeTask(t, prompt, anyOf([]string{accepted}, []string{"zebra"}, max(0, min(minF1, 1))))
		for _, spray := range []string{accepted + "\nzebra", "zebra, " + accepted, text + " zebra. " + accepted} {
			if v := judgeText(t, task, spray); v.Reason == "" {
				t.Errorf("%q passes", spray)
			}
		}
	})
}
