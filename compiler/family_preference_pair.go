package compiler

// PreferencePair asks for a choice between two answers. It is deferred: no verifier yet.
const PreferencePair Family = "preference_pair"

func preferencePair() *family {
	return deferred(PreferencePair, "Say which of two answers is better.",
		map[string]Lane{"preference": HiddenLane, "rubric": HiddenLane},
		optional("preference", anything("The preferred answer.")),
		optional("rubric", anything("How preferences are judged.")),
	)
}
