package compiler

// BrowserTask asks for actions in a web browser. It is deferred: no verifier yet.
const BrowserTask Family = "browser_task"

func browserTask() *family {
	return deferred(BrowserTask, "Reach a goal in a web browser.",
		map[string]Lane{"credentials": EvaluationInputs, "success_check": HiddenLane},
		optional("credentials", anything("What the sandbox logs in with.")),
		optional("success_check", anything("How success is recognised.")),
	)
}
