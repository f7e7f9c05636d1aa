package family

import (
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/schema"
)

// deferredFamilies returns the families without a verifier. Their rows compile and their harness runs,
// and records stay pending.
func deferredFamilies() []*compiler.Family {
	return []*compiler.Family{
		deferred("tool_call", "Call tools until the state is the expected one.", []string{"initial_state"},
			schema.Optional("initial_state", anything("The state that the tools start from.")),
			schema.Optional("expected_calls", anything("The calls that are expected.")),
			schema.Optional("expected_final_state", anything("The state that is expected in the end.")),
		),
		deferred("browser_task", "Reach a goal in a web browser.", []string{"credentials"},
			schema.Optional("credentials", anything("What the sandbox logs in with.")),
			schema.Optional("success_check", anything("How success is recognised.")),
		),
		deferred("desktop_task", "Reach a goal on a desktop.", nil,
			schema.Optional("success_check", anything("How success is recognised.")),
		),
		deferred("artifact_task", "Make an artifact, such as a document or a picture.", nil,
			schema.Optional("reference_artifact", anything("An artifact to compare with; may be a file reference.")),
			schema.Optional("rubric", anything("How artifacts are judged.")),
		),
		deferred("multimodal_qa", "Answer a question about pictures, sound or video.", nil,
			schema.Optional("answer", anything("The right answer.")),
			schema.Optional("rubric", anything("How answers are judged.")),
		),
		deferred("preference_pair", "Say which of two answers is better.", nil,
			schema.Optional("preference", anything("The preferred answer.")),
			schema.Optional("rubric", anything("How preferences are judged.")),
		),
	}
}

// deferred makes a family whose rows may hold any field.
func deferred(name, doc string, inputs []string, eval ...schema.Field) *compiler.Family {
	return &compiler.Family{
		Name: name, CandidateKind: compiler.CandidateText,
		Doc:    doc,
		Input:  &schema.Object{Unknown: schema.Accept},
		Eval:   &schema.Object{Unknown: schema.Accept, Fields: eval},
		Inputs: inputs,
	}
}
