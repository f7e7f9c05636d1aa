package record

import (
	"fmt"
	"strings"
)

// A Reason explains a value of Record.FailureReason.
type Reason struct {
	Name   string
	Status Status // of the records that have it
	Means  string
}

// Reasons returns every reason that a record can have, as docs/records.md prints
// them.
func Reasons() []Reason {
	var all []Reason
	add := func(status Status, lines string) {
		for line := range strings.Lines(lines) {
			name, means, ok := strings.Cut(strings.TrimSpace(line), ": ")
			if ok {
				all = append(all, Reason{name, status, means})
			}
		}
	}
	add(Failed, `
		producer_timeout: the harness did not end in time
		producer_out_of_memory: the harness ran out of memory
		producer_pids_limit: the harness ran out of processes
		producer_failed: the harness ended with another status than 0
		producer_not_started: the harness's command cannot be executed in the image
		max_total_tokens_exceeded: the agent used up its tokens
		max_requests_exceeded: the agent used up its requests
		reference_missing: with --harness reference, the task has no solution of its own
		candidate_missing: nothing was left
		candidate_too_big: more was left than is kept
		candidate_not_utf8: a text that is not UTF-8
		candidate_unreadable: the change to the repository cannot be taken
		candidate_link_denied: a link of the workspace leads to the checker's files, devices, /proc, or where a checker writes
		empty_patch: nothing was changed, or nothing but what is left out
		candidate_patch_invalid: the patch cannot be read
		candidate_policy_denied: the patch changes a path that it may not
		candidate_patch_failed: the patch does not apply
		changed_paths_mismatch: the patch changes other paths than it names
		test_patch_failed: the tests' patch does not apply after the candidate's
		preparation_failed: the repository with the candidate's patch cannot be brought to the state in which its tests run
		candidate_not_loaded: the code raised an error, or ended, before a test ran
		tests_raised: a test raised an error
		tests_ended: the process ended before the tests did
		tests_not_finished: the tests did not come to their end
		tests_failed: the tests' command ended with another status than 0
		checker_failed: the checker ended with another status than 0
		answer_follows_test: the tests pass, and still do once they expect something else
		verifier_timeout: the tests or the checker did not end in time
		verifier_out_of_memory: the tests or the checker ran out of memory
		verifier_pids_limit: the tests or the checker ran out of processes
		verifier_not_started: the checker cannot be executed where the candidate left something in its place
		verifier_dangerous_command_denied: the task needs a command that the tester file does not allow; no test ran
		no_answer: the text holds none
		wrong_answer: the answer is wrong
		several_answers: the text names several
		rejected_answer: the text holds a rejected answer`)
	add(Error, `
		infrastructure: sbench could not measure
		image_without_tools: the image lacks a shell
		repository_missing: the image has no git, or no repository at environment.workdir
		base_commit_mismatch: the image's repository is not at base_commit
		pack_patch_malformed: setup_patch or test_patch cannot be read
		pack_patch_fails: setup_patch or test_patch does not apply to the repository without a candidate
		tests_not_runnable: the tests' command lacks a program, with the right solution, too
		tests_cannot_fail: the tests' command ends with 0 although every test fails
		tests_malformed: a hidden test file is no Python that compiles
		checker_not_executable: the checker's script has no mode for it
		checker_not_runnable: the image lacks the checker's command, or its interpreter
		pytest_missing: the image has no pytest
		python_missing: the image has no python3 that the tests' user can use
		reference_fails: the reference solution does not pass the task's own tests`)
	add(Pending, `
		no_verifier: the family has none
		no_structured_rubric: the rubric is one for people
		language_without_verifier: the code is in another language than Python
		tests_without_verifier: the tests are not inline`)
	return all
}

// ReasonsTable returns the table of the documentation.
func ReasonsTable() string {
	var b strings.Builder
	b.WriteString("| `failure_reason` | status | |\n|---|---|---|\n")
	for _, r := range Reasons() {
		_, _ = fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", r.Name, r.Status, r.Means)
	}
	return b.String()
}
