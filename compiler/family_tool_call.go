package compiler

// ToolCall asks for calls of tools that reach a state. It is deferred: no verifier yet.
const ToolCall Family = "tool_call"

func toolCall() *family {
	return deferred(ToolCall, "Call tools until the state is the expected one.",
		map[string]Lane{"initial_state": EvaluationInputs, "expected_calls": HiddenLane, "expected_final_state": HiddenLane},
		optional("initial_state", anything("The state that the tools start from.")),
		optional("expected_calls", anything("The calls that are expected.")),
		optional("expected_final_state", anything("The state that is expected in the end.")),
	)
}
