package family

import (
	"strings"
	"time"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/hidden"
	"github.com/securebench/sbench/compiler/patch"
	"github.com/securebench/sbench/compiler/schema"
)

// RepoPatch asks for a change to a git repository.
func RepoPatch() *compiler.Family {
	return &compiler.Family{
		Name: "repo_patch", CandidateKind: compiler.CandidatePatch,
		Doc: "Change a git repository. Its tests then run on a fresh checkout with the change.",
		Input: &schema.Object{Fields: []schema.Field{
			schema.Required("repo", schema.Text("The repository's name.")),
			schema.Required("base_commit", schema.Text("The commit that the image's checkout is at.")),
			schema.Required("instructions", schema.Text("What to change.")),
			schema.Optional("hints", schema.Text("Help for the agent.")),
		}},
		Eval: &schema.Object{Fields: []schema.Field{
			schema.Optional("tests", repoTestsSchema()),
			compiler.SplitField(),
			schema.Optional("candidate_policy", schema.Closed("Which paths the candidate's patch may change.", schema.Fields(CandidatePolicy{}, repoRules())...)),
			schema.Optional("gold_patch", &schema.Schema{Doc: "A patch that solves the task.", String: &schema.String{}, Check: checkPatch}),
		}},
		Inputs: []string{"tests", "candidate_policy"},
		Check:  checkRepoPatch,
		Rules: func(t *compiler.Task) string {
			if t.Split() != nil { // there are no tests in the repository
				return ""
			}
			return RepoPatchOf(t).Policy.rules()
		},
	}
}

func repoTestsSchema() *schema.Schema {
	source := schema.Required("source", schema.Enum("Where the tests come from.", "command"))
	return schema.Closed("The tests; exit status 0 passes.", append([]schema.Field{source}, schema.Fields(RepoPatchEval{}, repoRules())...)...)
}

func patchSchema(doc string) *schema.Schema {
	return &schema.Schema{
		Doc:    doc,
		String: &schema.String{NonBlank: true},
		Object: &schema.Object{Fields: []schema.Field{
			schema.Required("source", schema.Enum("Where the patch is.", "inline")),
			schema.Required("patch", schema.Text("The patch, as git diff writes it.")),
		}},
		Check: checkPatch,
	}
}

func checkPatch(c *schema.Checker, v document.Value) {
	text := patchText(v)
	if _, err := patch.Parse(text); text != "" && err != nil {
		hint := "write it with git diff"
		if strings.Contains(text, "\r\n") {
			hint = "it has CRLF line ends"
		}
		c.Errorf(v, hint, "malformed patch: %v", err)
	}
}

func repoRules() schema.Rules {
	const glob = "A path or glob, relative to the repository, with all below it; ** matches any directories, and *.py files in any."
	return schema.Rules{"patch": schema.As(patchSchema), "glob": func(s *schema.Schema) { s.Doc = glob }}
}

func checkRepoPatch(c *schema.Checker, _, eval document.Value) {
	compiler.OneCheck(c, eval, "tests", "the command that tests; or give split")
	if top := eval.Get("candidate_policy"); top.Kind() != 0 && eval.Get("tests").Get("candidate_policy").Kind() != 0 {
		c.Errorf(top, "keep one of the two", "eval.tests has a candidate_policy too")
	}
}

// CandidatePolicy says by globs which paths a candidate's patch may change; see patch.Match.
// The zero policy has the defaults.
type CandidatePolicy struct {
	AllowPaths          []string `key:"allow_paths" rule:"glob" doc:"The only paths that may change. Without it all may that are not denied."`
	AllowSensitivePaths []string `key:"allow_sensitive_paths" rule:"glob" doc:"Paths that may change although they belong to the tests by default."`
	PatchPreservedPaths []string `key:"patch_preserved_paths" rule:"glob" doc:"Paths that stay as in the repository: the verifier leaves out the candidate's changes to them."`
	Strict              bool     `key:"strict" doc:"Deny a patch that changes what belongs to the tests, instead of leaving that part out."`
}

// rules returns sentences for agents about the paths of the repository that they must not change.
func (p CandidatePolicy) rules() string {
	text := "Existing tests, files that they read, and what configures or starts them belong to the tests"
	if len(p.AllowSensitivePaths) > 0 {
		text += ", but for " + strings.Join(p.AllowSensitivePaths, ", ")
	}
	if text += ". "; p.Strict {
		text += "A change to them, and a new test, makes the whole result invalid."
	} else {
		text += "A change to them does not count, and neither do new tests."
	}
	if len(p.AllowPaths) > 0 {
		text += " Only these paths may change: " + strings.Join(p.AllowPaths, ", ") + "."
	}
	return text
}

// RepoPatchEval is what is needed to verify a repo_patch task. It prints as "<redacted>". Fields with a doc tag have the
// values of eval.tests, and are zero if the author gave none.
type RepoPatchEval struct {
	hidden.Fields
	BaseCommit string               `key:"base_commit" trim:"space"` // the commit that the image's checkout is at
	Command    schema.Command       `key:"command" rule:"required" doc:"The command that runs the tests."`
	Workdir    string               `key:"workdir" trim:"space" doc:"Where to run it, environment.workdir unless given."`
	Timeout    time.Duration        `key:"timeout_seconds" doc:"How long it may take."`
	SetupPatch string               `key:"setup_patch" rule:"patch" doc:"A patch to apply before the candidate's."`
	TestPatch  string               `key:"test_patch" rule:"patch" doc:"A patch with the tests, to apply after the candidate's."`
	Policy     CandidatePolicy      `key:"candidate_policy" doc:"Which paths the candidate's patch may change."` // of eval or of its tests
	GoldPatch  hidden.Value[string] `key:"gold_patch"`                                                           // "" if there is none
}

// RepoPatchOf returns what is needed to verify a task of the family.
func RepoPatchOf(t *compiler.Task) RepoPatchEval {
	eval := compiler.EvalOf[RepoPatchEval](t)
	tests := t.Eval().Get("tests")
	schema.Decode(tests, &eval)
	eval.SetupPatch, eval.TestPatch = patchText(tests.Get("setup_patch")), patchText(tests.Get("test_patch"))
	return eval
}

func patchText(v document.Value) string {
	if v.Kind() == document.Object {
		return v.Get("patch").Text()
	}
	return v.Text()
}
