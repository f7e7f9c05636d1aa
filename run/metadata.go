package run

import (
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime"
)

// exitMetadata says how a process ended, for a record.
func exitMetadata(e runtime.Exit) record.Metadata {
	if e.Reason == 0 {
		return record.Metadata{}
	}
	m := record.Metadata{"exit_reason": e.Reason.String(), "exit_code": e.Code, "wall_seconds": e.Wall.Seconds(), "usage": e.Usage,
		"stdout_bytes": e.Stdout.Total, "stderr_bytes": e.Stderr.Total}
	if e.Signal != 0 {
		m["signal"] = e.Signal
	}
	if len(e.Reached) > 0 {
		m["limits_reached"] = e.Reached
	}
	return m
}
