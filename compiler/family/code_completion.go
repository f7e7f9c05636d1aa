package family

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/hidden"
	"github.com/securebench/sbench/compiler/schema"
)

// Fenced is the value of eval.extract for candidates in the form of chat models' answers.
const Fenced = "fenced"

// CodeCompletion asks for source code, which the verifier tests.
func CodeCompletion() *compiler.Family {
	return &compiler.Family{
		Name: "code_completion", CandidateKind: compiler.CandidateCode,
		Doc: "Write code. Tests that the agent never sees use the names it defines.",
		Input: &schema.Object{Fields: []schema.Field{
			schema.Required("prompt", schema.Text("What the code has to do.")),
			schema.Optional("language", schema.Text("The language, python unless given. For tests only python has a verifier.")),
			schema.Optional("starter_code", schema.AnyText("Code to begin with.")),
		}},
		Eval: &schema.Object{Fields: []schema.Field{
			schema.Optional("tests", schema.Closed("The tests: {\"source\": \"inline\", \"code\": \"…\"}. The code finds the candidate's top-level names as globals.",
				schema.Required("source", schema.Enum("Where the tests are: \"inline\".", "inline")),
				schema.Required("code", schema.Text("The code of the tests. It fails by an exception.")),
			)),
			compiler.SplitField(),
			schema.Optional("reference_solution", schema.AnyText("A right solution, whole.")),
			schema.Optional("canonical_solution", schema.AnyText("A right solution, possibly a body that continues the prompt.")),
			schema.Optional("extract", schema.Enum("How the candidate is found in what was written: \"none\", all of it, unless given; \"fenced\", the code in Markdown fences, or the body of the starter code's last function.", "none", Fenced)),
		}},
		Inputs: []string{"tests"},
		Check:  checkCodeCompletion,
	}
}

func checkCodeCompletion(c *schema.Checker, input, eval document.Value) {
	if compiler.OneCheck(c, eval, "tests", `the tests: {"source": "inline", "code": "…"}; or give split`) {
		return
	}
	if language := input.Get("language"); !compiler.IsPython(language.Text()) {
		c.Warnf(language, "", "only python has a verifier, not %q", language.Text())
	}
}

// CodeCompletionEval is what is needed to verify a code_completion task. It prints as
// "<redacted>".
type CodeCompletionEval struct {
	hidden.Fields
	Prompt            string               `key:"prompt"`
	Language          string               `key:"language"`           // "python" unless the author gave another
	StarterCode       string               `key:"starter_code"`       // empty if the author gave none
	Tests             string               `key:"code"`               // "" for a task with a split check
	ReferenceSolution hidden.Value[string] `key:"reference_solution"` // complete; "" if there is none
	Extract           string               `key:"extract"`            // Fenced, "none" or ""
	CanonicalSolution hidden.Value[string] `key:"canonical_solution"` // possibly a body that continues Prompt; "" if there is none
}

// CodeCompletionOf returns what is needed to verify a task of the family.
func CodeCompletionOf(t *compiler.Task) CodeCompletionEval {
	eval := compiler.EvalOf[CodeCompletionEval](t)
	schema.Decode(t.Eval().Get("tests"), &eval)
	if compiler.IsPython(eval.Language) {
		eval.Language = "python"
	}
	return eval
}

// Continue returns the program that code completes: the starter code, or the prompt, and then the code.
// If Extract is Fenced, it returns Program(code).
func (e CodeCompletionEval) Continue(code string) string {
	if e.Extract == Fenced {
		return e.Program(code)
	}
	starter := cmp.Or(e.StarterCode, e.Prompt)
	if !strings.HasSuffix(starter, "\n") {
		starter += "\n"
	}
	return starter + code
}

// fence matches a line that opens or closes a block of Markdown, thought the text up to the end of a model's
// thoughts, declaration the first line of a function or class.
var (
	fence       = regexp.MustCompile("(?m)^ {0,3}(?:```+|~~~+)[ \t]*(\\w*).*\n?")
	thought     = regexp.MustCompile(`(?is)^.*</(?:think|thinking|reasoning)>`)
	declaration = regexp.MustCompile(`(?m)^(?:(?:async[ \t]+)?def|class)[ \t]+([A-Za-z_]\w*)`)
)

// Program returns the program in a chat model's answer. Its code is what fencedCode finds. If the code
// does not declare the last function or class of the starter code, Program takes the code for the body of
// this function, and repairs lost indentation.
func (e CodeCompletionEval) Program(answer string) string {
	code := fencedCode(answer)
	starter := cmp.Or(e.StarterCode, e.Prompt)
	names := declaration.FindAllStringSubmatch(starter, -1)
	if len(names) == 0 || slices.ContainsFunc(declaration.FindAllStringSubmatch(code, -1), func(m []string) bool { return m[1] == names[len(names)-1][1] }) {
		return code
	}
	return strings.TrimRight(starter, " \t\n") + "\n" + indented(code)
}

// fencedCode returns the code in an answer:
//
//	fences              the blocks that declare a function or a class, joined, or else the longest block
//	no fence            the whole answer
//	one closing fence   the text before it
//
// Blocks in another language than Python count only if there are no others. A block loses the indentation of
// its fence. Text up to the end of a model's thoughts, such as </think>, is not part of the answer.
func fencedCode(answer string) string {
	answer = thought.ReplaceAllString(strings.ReplaceAll(answer, "\r\n", "\n"), "")
	marks := fence.FindAllStringSubmatchIndex(answer, -1)
	if len(marks) == 0 {
		return answer
	}
	tag := func(i int) string { return strings.ToLower(answer[marks[i][2]:marks[i][3]]) }
	if before := answer[:marks[0][0]]; len(marks) == 1 && tag(0) == "" && strings.TrimSpace(before) != "" {
		return before
	}
	var blocks, foreign []string
	for i := 0; i < len(marks); i += 2 {
		end := len(answer)
		if i+1 < len(marks) {
			end = marks[i+1][0]
		}
		mark := answer[marks[i][0]:marks[i][1]]
		margin := "\n" + mark[:strings.IndexAny(mark, "`~")]
		if block := strings.ReplaceAll("\n"+answer[marks[i][1]:end], margin, "\n")[1:]; compiler.IsPython(tag(i)) {
			blocks = append(blocks, block)
		} else {
			foreign = append(foreign, block)
		}
	}
	if len(blocks) == 0 {
		blocks = foreign
	}
	declaring := slices.DeleteFunc(slices.Clone(blocks), func(b string) bool { return !declaration.MatchString(b) })
	if len(declaring) > 0 {
		return strings.Join(declaring, "\n")
	}
	return slices.MaxFunc(blocks, func(a, b string) int { return len(a) - len(b) })
}

// indented returns the body of a function after restoring lost indentation: of the first line, or of all
// lines if other lines show that they lost theirs.
func indented(body string) string {
	const indent = "    "
	lines := strings.Split(strings.Trim(body, "\n"), "\n")
	if strings.TrimLeft(lines[0], " \t") != lines[0] {
		return strings.Join(lines, "\n") + "\n"
	}
	all := false
	for i, line := range lines[1:] {
		outer := line != "" && line == strings.TrimLeft(line, " \t") && !declaration.MatchString(line)
		all = all || outer || i == 0 && strings.HasSuffix(lines[0], ":") && !strings.HasPrefix(line, indent+" ")
	}
	for i, line := range lines {
		if i == 0 || all && line != "" {
			lines[i] = indent + line
		}
	}
	return strings.Join(lines, "\n") + "\n"
}
