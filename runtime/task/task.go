// Package task is how sandboxes run their processes. A sandbox describes a container to a
// [Driver], which makes the container and processes in it with a shim of containerd.
//
// There are two drivers. Package viashim talks to sbench's own shim; the daemon knows nothing of
// the sandboxes. Package viadaemon asks the daemon, which has any shim that it is configured for.
//
// The package knows processes and their streams. What a sandbox is made of, and what the end of a
// process means, is for package sandbox.
package task

import (
	"context"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// A Driver makes containers. Its methods are safe for concurrent use.
type Driver interface {
	// Ready waits for what the next container needs, such as a restarting daemon.
	Ready(ctx context.Context) error
	// Create makes a container and its first process, which does not execute its program yet. If
	// it returns a container, the caller deletes it, also after an error.
	Create(ctx context.Context, c Config, std *Streams) (Container, error)
}

// A Container has a first process, and may have more.
type Container interface {
	// First returns the first process and its pid. Deleting it deletes the container.
	First() (p Process, pid int)
	// Start lets the first process execute its program.
	Start(ctx context.Context) error
	// Exec makes and starts another process. If it returns a process together with an error, the
	// process may run, and the caller kills and deletes it.
	Exec(ctx context.Context, id string, p *specs.Process, std *Streams) (made Process, pid int, err error)
}

// A Process is one that a shim has made.
type Process interface {
	// Wait returns the exit status.
	Wait(ctx context.Context) (status uint32, err error)
	// Signal sends a signal by way of the shim. With others, it goes instead to each process of a
	// sandbox with a kernel of its own except the first, and the error is nil only if there was none.
	Signal(ctx context.Context, sig unix.Signal, others bool) error
	// Delete makes the shim forget the process, which must have ended. It is no error if the shim
	// does not know the process, or is gone.
	Delete(ctx context.Context) error
}

// A Config describes a container.
type Config struct {
	ID   string
	Dir  string // the sandbox's directory, for files of the container
	Spec *specs.Spec
	JSON []byte // of Spec
	// Base is the host's id of the sandbox's root, 0 if the sandbox has the ids of this process.
	Base uint32
	// Devices is the host path of the sandbox's own /dev, "" if it has none.
	Devices string
	// Image is the image's reference, and Labels are the container's, for the daemon.
	Image  string
	Labels map[string]string
}
