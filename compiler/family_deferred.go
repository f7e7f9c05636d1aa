package compiler

import "github.com/securebench/sbench/compiler/schema"

// Families whose rows load and compile, and whose harness runs, but which have no
// verifier yet.
const (
	ToolCall       Family = "tool_call"       // calls of tools that reach a state
	BrowserTask    Family = "browser_task"    // actions in a web browser
	DesktopTask    Family = "desktop_task"    // actions on a desktop
	ArtifactTask   Family = "artifact_task"   // a file of some kind
	MultimodalQA   Family = "multimodal_qa"   // an answer about pictures, sound or video
	PreferencePair Family = "preference_pair" // a choice between two answers
)

func deferredFamilies() []*family {
	return []*family{
		deferred(ToolCall, "Call tools until the state is the expected one.",
			evalField{"initial_state", EvaluationInputs, "The state that the tools start from."},
			evalField{"expected_calls", HiddenLane, "The calls that are expected."},
			evalField{"expected_final_state", HiddenLane, "The state that is expected in the end."},
		),
		deferred(BrowserTask, "Reach a goal in a web browser.",
			evalField{"credentials", EvaluationInputs, "What the sandbox logs in with."},
			evalField{"success_check", HiddenLane, "How success is recognised."},
		),
		deferred(DesktopTask, "Reach a goal on a desktop.",
			evalField{"success_check", HiddenLane, "How success is recognised."},
		),
		deferred(ArtifactTask, "Make an artifact, such as a document or a picture.",
			evalField{"reference_artifact", HiddenLane, "An artifact to compare with; may be a file reference."},
			evalField{"rubric", HiddenLane, "How artifacts are judged."},
		),
		deferred(MultimodalQA, "Answer a question about pictures, sound or video.",
			evalField{"answer", HiddenLane, "The right answer."},
			evalField{"rubric", HiddenLane, "How answers are judged."},
		),
		deferred(PreferencePair, "Say which of two answers is better.",
			evalField{"preference", HiddenLane, "The preferred answer."},
			evalField{"rubric", HiddenLane, "How preferences are judged."},
		),
	}
}

// evalField is an eval field that may hold anything.
type evalField struct {
	name string
	lane Lane
	doc  string
}

// deferred makes a family whose rows may hold any field.
func deferred(name Family, doc string, eval ...evalField) *family {
	f := &family{
		Family: name, CandidateKind: CandidateText,
		doc:   doc,
		input: &schema.Object{Unknown: schema.Accept},
		eval:  &schema.Object{Unknown: schema.Accept},
		lanes: map[string]Lane{},
	}
	for _, e := range eval {
		f.eval.Fields = append(f.eval.Fields, optional(e.name, anything(e.doc)))
		f.lanes[e.name] = e.lane
	}
	return f
}
