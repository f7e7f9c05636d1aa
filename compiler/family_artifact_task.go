package compiler

// ArtifactTask asks for a file of some kind. It is deferred: no verifier yet.
const ArtifactTask Family = "artifact_task"

func artifactTask() *family {
	return deferred(ArtifactTask, "Make an artifact, such as a document or a picture.",
		map[string]Lane{"reference_artifact": HiddenLane, "rubric": HiddenLane},
		optional("reference_artifact", anything("An artifact to compare with; may be a file reference.")),
		optional("rubric", anything("How artifacts are judged.")),
	)
}
