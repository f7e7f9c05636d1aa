package compiler

import "github.com/securebench/sbench/compiler/schema"

// Families whose rows compile and whose harness runs, but which have no verifier yet.
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
		deferred(ToolCall, "Call tools until the state is the expected one.", []string{"initial_state"},
			optional("initial_state", anything("The state that the tools start from.")),
			optional("expected_calls", anything("The calls that are expected.")),
			optional("expected_final_state", anything("The state that is expected in the end.")),
		),
		deferred(BrowserTask, "Reach a goal in a web browser.", []string{"credentials"},
			optional("credentials", anything("What the sandbox logs in with.")),
			optional("success_check", anything("How success is recognised.")),
		),
		deferred(DesktopTask, "Reach a goal on a desktop.", nil,
			optional("success_check", anything("How success is recognised.")),
		),
		deferred(ArtifactTask, "Make an artifact, such as a document or a picture.", nil,
			optional("reference_artifact", anything("An artifact to compare with; may be a file reference.")),
			optional("rubric", anything("How artifacts are judged.")),
		),
		deferred(MultimodalQA, "Answer a question about pictures, sound or video.", nil,
			optional("answer", anything("The right answer.")),
			optional("rubric", anything("How answers are judged.")),
		),
		deferred(PreferencePair, "Say which of two answers is better.", nil,
			optional("preference", anything("The preferred answer.")),
			optional("rubric", anything("How preferences are judged.")),
		),
	}
}

// deferred makes a family whose rows may hold any field.
func deferred(name Family, doc string, inputs []string, eval ...schema.Field) *family {
	return &family{
		Family: name, CandidateKind: CandidateText,
		doc:    doc,
		input:  &schema.Object{Unknown: schema.Accept},
		eval:   &schema.Object{Unknown: schema.Accept, Fields: eval},
		inputs: inputs,
	}
}
