package runtime

import (
	"fmt"
	"strings"
	"time"
)

// Reason says how a process ended, as in records. The zero Reason is invalid.
type Reason string

// The reasons. They come from the kernel and sbench's own clock, never from what the process
// wrote.
const (
	// Exited means that the process ended by itself with [Exit.Code].
	Exited Reason = "exited"
	// Signaled means that a signal not sent by sbench ended the process.
	Signaled Reason = "signaled"
	// WallTime means that sbench killed the process because [Process.Wall] had elapsed.
	WallTime Reason = "wall_time"
	// OutOfMemory means that the process failed after the kernel, or sbench where the kernel
	// cannot, had killed a process because the sandbox used too much memory.
	OutOfMemory Reason = "out_of_memory"
	// PidsLimit means that the process failed after the kernel had refused the sandbox a new
	// process or thread.
	PidsLimit Reason = "pids_limit"
)

// Limit names a limit that a process reached.
type Limit string

// The limits that [Exit.Reached] can list. Reaching one need not end the process.
const (
	LimitWall   Limit = "wall_time" // Process.Wall
	LimitMemory Limit = "memory"    // Limits.Memory
	LimitPids   Limit = "pids"      // Limits.Pids
	LimitOutput Limit = "output"    // Process.OutputBytes, of either stream
	LimitDisk   Limit = "disk"      // Limits.LayerBytes: the writable layer is full
)

// Exit says how a process ended. The zero Exit is invalid.
type Exit struct {
	Reason  Reason
	Code    int           // 0–255, meaningful only if Reason is Exited, OutOfMemory or PidsLimit and Signal is 0
	Signal  int           // the number of the signal that ended the process; 0 if none did
	Reached []Limit       // every limit that was reached, in a fixed order
	Wall    time.Duration // from start to exit
	Usage   Usage
	Stdout  Output
	Stderr  Output
	// Spec is the digest of the sandbox's OCI specification; "" if the engine has none.
	Spec string
}

// Success reports whether the process exited by itself with code 0.
func (e Exit) Success() bool { return e.Reason == Exited && e.Code == 0 }

// String describes the end for people. It contains nothing that the process wrote.
func (e Exit) String() string {
	switch e.Reason {
	case Exited:
		return fmt.Sprintf("exited with code %d", e.Code)
	case Signaled:
		return fmt.Sprintf("killed by signal %d", e.Signal)
	case WallTime:
		return fmt.Sprintf("killed after its time limit, at %s", e.Wall.Round(time.Millisecond))
	case OutOfMemory:
		return "ran out of memory"
	case PidsLimit:
		return fmt.Sprintf("ran out of processes and exited with code %d", e.Code)
	}
	return fmt.Sprintf("ended in the invalid way %q", string(e.Reason))
}

// Metadata describes the end for a record, by the record's keys. It contains nothing that the
// process wrote, and is empty for the zero Exit.
func (e Exit) Metadata() map[string]any {
	m := map[string]any{}
	if e.Reason == "" {
		return m
	}
	m["exit_reason"], m["exit_code"], m["wall_seconds"], m["usage"] = string(e.Reason), e.Code, e.Wall.Seconds(), e.Usage
	if e.Signal != 0 {
		m["signal"] = e.Signal
	}
	if len(e.Reached) > 0 {
		m["limits_reached"] = e.Reached
	}
	return m
}

// Usage is what the kernel counted for the sandbox's cgroup or, without one, what a watchdog
// saw. In a one-shot sandbox it covers the sandbox's whole life. In a persistent one the
// peaks are since its creation, and CPU since the process started. Fields that were not
// reported are 0.
type Usage struct {
	CPU        time.Duration `json:"cpu_ns"`            // user and system time
	PeakMemory int64         `json:"peak_memory_bytes"` // bytes
	PeakPids   int64         `json:"peak_pids"`         // processes and threads
}

// Output is what was kept of a stream: its beginning, end and total length. The zero Output
// is an empty stream.
type Output struct {
	Head, Tail []byte
	Total      int64 // bytes written by the process
}

// Cut returns how many bytes are missing between Head and Tail.
func (o Output) Cut() int64 { return o.Total - int64(len(o.Head)) - int64(len(o.Tail)) }

// Bytes returns a copy of the output, with a line that says how many bytes are missing, if
// any.
func (o Output) Bytes() []byte {
	if o.Cut() <= 0 {
		return append(append([]byte{}, o.Head...), o.Tail...)
	}
	mark := fmt.Sprintf("\n[sbench: %d bytes cut]\n", o.Cut())
	return append(append(append([]byte{}, o.Head...), mark...), o.Tail...)
}

// String returns the same as Bytes, with invalid UTF-8 replaced by U+FFFD.
func (o Output) String() string { return strings.ToValidUTF8(string(o.Bytes()), "\uFFFD") }
