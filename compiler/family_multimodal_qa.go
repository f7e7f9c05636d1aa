package compiler

// MultimodalQA asks for an answer about pictures, sound or video. It is deferred: no verifier yet.
const MultimodalQA Family = "multimodal_qa"

func multimodalQA() *family {
	return deferred(MultimodalQA, "Answer a question about pictures, sound or video.",
		map[string]Lane{"answer": HiddenLane, "rubric": HiddenLane},
		optional("answer", anything("The right answer.")),
		optional("rubric", anything("How answers are judged.")),
	)
}
