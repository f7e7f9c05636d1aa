package runtime

import (
	"fmt"
	"strings"
	"time"
)

// Reason says how a process ended. The zero Reason is invalid.
type Reason int

// The reasons, from facts of the kernel and of sbench's own clock.
const (
	// Exited: by itself, with Exit.Code.
	Exited Reason = iota + 1
	// Signaled: by a signal that nobody of ours sent.
	Signaled
	// WallTime: killed by sbench when Process.Wall was over.
	WallTime
	// OutOfMemory: it failed, and the kernel killed a process of the sandbox for
	// memory meanwhile.
	OutOfMemory
	// PidsLimit: it failed, and the kernel refused a fork or thread meanwhile.
	PidsLimit
)

// String is the reason in a word, as records have it.
func (r Reason) String() string {
	names := [...]string{"", "exited", "signaled", "wall_time", "out_of_memory", "pids_limit"}
	if r < Exited || int(r) >= len(names) {
		return fmt.Sprintf("invalid reason %d", int(r))
	}
	return names[r]
}

// MarshalText writes the reason's name and refuses an invalid one.
func (r Reason) MarshalText() ([]byte, error) {
	if r < Exited || r > PidsLimit {
		return nil, fmt.Errorf("exit reason %d is invalid", int(r))
	}
	return []byte(r.String()), nil
}

// Limit names a bound that was reached.
type Limit string

// Bounds that can be seen to have been reached. A reached limit does not by
// itself end a process.
const (
	LimitWall   Limit = "wall_time"
	LimitMemory Limit = "memory"
	LimitPids   Limit = "pids"
	LimitOutput Limit = "output"
	LimitDisk   Limit = "disk" // the writable layer is full
)

// Exit is how a process ended.
type Exit struct {
	Reason  Reason
	Code    int           // 0–255, meaningful only if Reason is Exited, OutOfMemory or PidsLimit and Signal is 0
	Signal  int           // of the process; 0 if it was not ended by one
	Reached []Limit       // every bound that was hit, in a fixed order
	Wall    time.Duration // from start to exit
	Usage   Usage
	Stdout  Output
	Stderr  Output
	// Spec is the digest of the sandbox's OCI specification; "" where there is
	// none.
	Spec string
}

// Success says whether the process exited by itself with code 0.
func (e Exit) Success() bool { return e.Reason == Exited && e.Code == 0 }

// String describes the end without any byte the process wrote.
func (e Exit) String() string {
	switch {
	case e.Reason == Exited:
		return fmt.Sprintf("exited with code %d", e.Code)
	case e.Reason == Signaled:
		return fmt.Sprintf("killed by signal %d", e.Signal)
	case e.Reason == WallTime:
		return fmt.Sprintf("killed after its time limit, at %s", e.Wall.Round(time.Millisecond))
	case e.Reason == OutOfMemory:
		return "ran out of memory"
	case e.Reason == PidsLimit:
		return fmt.Sprintf("ran out of processes and exited with code %d", e.Code)
	}
	return e.Reason.String()
}

// Usage is what the kernel counted for the sandbox's cgroup: for a one-shot
// sandbox its whole life, for a persistent one since its creation (peaks) or
// since the process started (CPU). Zero means not reported.
type Usage struct {
	CPU        time.Duration `json:"cpu_ns"`
	PeakMemory int64         `json:"peak_memory_bytes"`
	PeakPids   int64         `json:"peak_pids"`
}

// Output is a bounded piece of a stream: its head, its tail, and how much there
// was in all.
type Output struct {
	Head, Tail []byte
	Total      int64 // bytes written by the process
}

// Cut says how many bytes between head and tail are missing.
func (o Output) Cut() int64 { return o.Total - int64(len(o.Head)) - int64(len(o.Tail)) }

// Bytes returns the output, with a line in place of what was cut.
func (o Output) Bytes() []byte {
	if o.Cut() <= 0 {
		return append(append([]byte{}, o.Head...), o.Tail...)
	}
	mark := fmt.Sprintf("\n[sbench: %d bytes cut]\n", o.Cut())
	return append(append(append([]byte{}, o.Head...), mark...), o.Tail...)
}

// String is Bytes with invalid UTF-8 replaced.
func (o Output) String() string { return strings.ToValidUTF8(string(o.Bytes()), "\uFFFD") }
