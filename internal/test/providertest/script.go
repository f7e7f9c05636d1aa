package providertest

import "time"

// A Step is one answer of a script: exactly one of Say, Shell, Write and Call. The next step is
// derived from the conversation in the request, so a retried request gets the same step, and
// several agents may follow one script.
type Step struct {
	Say   string // text
	Shell string // a command for the agent's shell
	Write *File
	Call  *Call

	Think  string        // reasoning before the answer
	Usage  Usage         // as reported; zero: 10 in, 5 out
	Delay  time.Duration // before the answer; in a stream, before each event
	Faults []Fault       // answers before the step, in order
}

// A File is a file to write with the agent's tool for files, or else with its shell.
type File struct {
	Path    string
	Content string
}

// A Call is a call of a tool that the agent offers under this name, perhaps after a prefix.
type Call struct {
	Tool  string
	Input string // JSON
}

// Usage is the tokens of one answer. Input includes Cached, Output includes Reasoning.
type Usage struct {
	Input     int64
	Cached    int64
	Output    int64
	Reasoning int64
}

// A Fault makes the answer to a request bad: exactly one of Status, Cut and Garble.
type Fault struct {
	Forever bool // the answer to all requests from now on

	Status     int  // answer with this error, 400 to 599
	RetryAfter int  // with Status: the header, in seconds; 0: none
	Cut        int  // break the connection after so many events, or bytes if the answer is not streamed
	Garble     bool // write malformed events
}
