package page_test

// Kinds of candidate.
const (
	text      = "text"
	patch     = "patch"
	directory = "directory"
)

// A kind is a kind of task.
type kind struct {
	family, category, word string
	candidate              string
	prompt, result         string
	ease                   float64
	failures               []string
	pending                bool
}

func kinds() []kind {
	tests := []string{"tests_failed", "tests_failed", "tests_failed", "verifier_timeout"}
	return []kind{
		{
			family: "repo_patch", category: "refactoring", word: "mend", candidate: patch, prompt: repoPrompt, result: repoPatch, ease: 0.7,
			failures: append(tests, "candidate_patch_failed", "candidate_policy_denied", "empty_patch", "producer_timeout"),
		},
		{
			family: "terminal_task", category: "operations", word: "restore", candidate: directory, prompt: terminalPrompt, ease: 0.8,
			failures: []string{"checker_failed", "checker_failed", "producer_timeout", "producer_out_of_memory", "candidate_link_denied"},
		},
		{
			family: "code_completion", category: "algorithms", word: "merge", candidate: text, prompt: codePrompt, result: code, ease: 1.1,
			failures: append(tests, "candidate_missing"),
		},
		{
			family: "repo_patch", category: "bug fixes", word: "slug", candidate: patch, prompt: repoPrompt, result: repoPatch, ease: 0.75,
			failures: append(tests, "changed_paths_mismatch"),
		},
		{
			family: "multiple_choice", category: "knowledge", word: "algebra", candidate: text, ease: 1.2,
			prompt: "Find the degree of the extension Q(sqrt(2), sqrt(3)) over Q.\n\nA. 0\nB. 4\nC. 2\nD. 6", result: "B", failures: []string{"wrong_answer"},
		},
		{
			family: "short_answer", category: "knowledge", word: "date", candidate: text, ease: 1.1,
			prompt: "In which year was the first Unix epoch second?", result: "1970", failures: []string{"wrong_answer", "candidate_missing"},
		},
		{
			family: "free_response", category: "writing", word: "explain", candidate: text, ease: 0.9,
			prompt: "Explain why a network namespace without interfaces cannot reach anything.", failures: []string{"wrong_answer", "rejected_answer"},
			result: "A namespace has its own interfaces, routes and sockets. With only the loopback interface there is no route to another host, so every packet stays inside.",
		},
		{
			family: "artifact_task", category: "design", word: "poster", candidate: text, pending: true,
			prompt: "Draw a poster for a reading of poems.", result: "poster.svg",
		},
		{
			family: "terminal_task", category: "data", word: "clean", candidate: directory, prompt: terminalPrompt, ease: 0.9,
			failures: []string{"checker_failed", "verifier_out_of_memory"},
		},
	}
}

const repoPrompt = `## Instructions

The function slug() of textkit turns every character that is no letter into a dash, so that
"Hello,  world!" becomes "hello---world-". Runs of such characters must become one dash, and
there must be none at either end.

## How your result is collected

You work alone in a sandbox. Change the repository in /testbed in place.
`

const terminalPrompt = `## Instructions

The log service does not start any more since its configuration was moved. Find out why, mend it,
and write the cause in one line to cause.txt.

## How your result is collected

Leave the directory /workspace in the state that the task asks for.
`

const codePrompt = `Write merge(a, b), which merges two sorted lists into one sorted list in linear time.`

const repoPatch = `diff --git a/textkit/words.py b/textkit/words.py
index 2f1c1ab..8d3e0b2 100644
--- a/textkit/words.py
+++ b/textkit/words.py
@@ -1,14 +1,19 @@ import re
 import re
 
 
+_GAP = re.compile(r"[^a-z0-9]+")
+
+
 def words(text):
     """Split a text into its words."""
     return re.findall(r"\w+", text)
 
 
 def slug(title):
-    """Make a name for an address of a title."""
-    return re.sub(r"[^a-z0-9]", "-", title.lower())
+    """Make a name for an address of a title: runs of other characters
+    become one dash, and none is left at either end.
+    """
+    return _GAP.sub("-", title.lower()).strip("-")
 
 
 def initials(name):
diff --git a/CHANGES b/CHANGES
index 9daeafb..180cf83 100644
--- a/CHANGES
+++ b/CHANGES
@@ -1 +1,3 @@
+slug: one dash for a run of other characters.
+
 1.0: first release
`

const code = `"""Merging of sorted lists."""

from collections.abc import Iterable


def merge(a: list[int], b: list[int]) -> list[int]:
    # Walk both lists once; each step takes the smaller head.
    out, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        if a[i] <= b[j]:
            out.append(a[i])
            i += 1
        else:
            out.append(b[j])
            j += 1
    return out + a[i:] + b[j:]


if __name__ == "__main__":
    assert merge([1, 3], [2, 4]) == [1, 2, 3, 4]
    print(f"merged {len(merge([1], [2]))} items")
`

func failedTests() string {
	return `..............F.....                                           [100%]
=================================== FAILURES ===================================
_______________________________ test_slug_dashes _______________________________

    def test_slug_dashes():
>       assert slug("Hello,  world!") == "hello-world"
E       AssertionError: assert 'hello---world-' == 'hello-world'
E         - hello-world
E         + hello---world-

tests/test_words.py:14: AssertionError
=========================== short test summary info ============================
FAILED tests/test_words.py::test_slug_dashes - AssertionError
1 failed, 19 passed in 2.01s
`
}
