package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// Errors that callers tell apart with errors.Is. An error, as opposed to an
// [Exit], means that nothing was measured.
var (
	// ErrUnavailable: the daemon behind the sandboxes does not answer.
	ErrUnavailable = errors.New("runtime unavailable")
	// ErrNotFound: no such image.
	ErrNotFound = errors.New("not found")
	// ErrInvalid: what the operator chose cannot be used.
	ErrInvalid = errors.New("cannot be used")
	// ErrSpent: a one-shot sandbox was asked for a second process.
	ErrSpent = errors.New("one-shot sandbox has run its process")
	// ErrClosed: the sandbox was closed, or lost its first process.
	ErrClosed = errors.New("sandbox is closed")
	// ErrNotStarted: the process could not be executed at all (no such file,
	// not executable). That is the fault of who wrote the command, or of the
	// image, and never of the host.
	ErrNotStarted = errors.New("process was not started")
	// ErrDenied: a [CommandPolicy] refused the command.
	ErrDenied = errors.New("command denied by policy")
	// ErrStillAlive: processes survived the kill. Nothing the sandbox wrote may
	// be trusted to have stopped changing.
	ErrStillAlive = errors.New("processes survived")
)

// A Sandbox runs processes in one isolated environment.
type Sandbox interface {
	// Exec runs p to completion. A process that fails, is killed or hits a limit
	// is a result; err means there is no trustworthy Exit. When Exec returns,
	// with or without an error other than ErrStillAlive, no process that p
	// started is alive. Cancelling ctx kills p.
	//
	// Calls are serialised. A one-shot sandbox takes one call.
	Exec(ctx context.Context, p Process) (Exit, error)
	// Path returns the host path of the directory dir, absolute inside, as a
	// one-shot sandbox left it in its root file system; mounts do not show. No
	// link is followed: what is no directory is fs.ErrNotExist. It fails before
	// the process has ended, and is good until Close.
	Path(dir string) (string, error)
	// Close waits for a running Exec, kills what still runs and removes
	// everything but what the caller handed in. It is idempotent and works on a
	// context of its own when ctx is cancelled.
	Close(ctx context.Context) error
}

// A Volume is a directory of its own, bounded in bytes and inodes where the
// host can do that.
type Volume interface {
	// Path is the absolute host path of the directory.
	Path() string
	// Full says whether writes to it have been running out of space or inodes.
	Full() (bool, error)
	// Close removes the volume. Sandboxes that mount it must be closed first.
	Close() error
}

// VolumeConfig sizes a volume. Bytes and Inodes must be positive.
type VolumeConfig struct {
	Bytes  int64
	Inodes int64
}

// An Image is a root file system that is present and unpacked on this host.
type Image struct {
	Ref      string   `json:"ref"`      // normalised, as the daemon knows it
	Digest   string   `json:"digest"`   // of the manifest or index the reference points to
	Platform string   `json:"platform"` // os/architecture
	ChainID  string   `json:"chain_id"` // names the unpacked file system
	Env      []string `json:"env"`
	User     string   `json:"user"`
	Workdir  string   `json:"workdir"`
}

// A View is read access to an image's files without any process.
type View interface {
	// Root holds the file system; it is closed with the view.
	Root() *os.Root
	Close() error
}

// Config describes a sandbox. Image or From must be given.
type Config struct {
	Name  string // for people, in labels; need not be unique
	Image Image
	// From is a stopped sandbox of the same engine whose root file system, with
	// what was written to it, becomes the read-only base of this one. It must
	// stay open until this one is closed.
	From Sandbox

	Persistent   bool
	WritableRoot bool // else only tmpfs and mounts can be written
	Mounts       []Mount
	Capabilities []string // see oci.WithCapabilities
	// Sealed keeps the sandbox's processes out of one another's memory; see
	// oci.WithSealedProcesses.
	Sealed  bool
	Limits  Limits
	Env     []string // NAME=value over the image's own
	Workdir string   // absolute; "" means the image's
	User    string   // uid[:gid] or names; "" means the image's
	Network *Network // nil is a loopback interface with nothing on it
}

// A Network is what a sandbox finds on its loopback interface, which is all it
// has: no other interface, and no route to anything.
type Network struct {
	// TCP and UDP are addresses with ports on which this process listens in the
	// sandbox.
	TCP, UDP []string
	// Redirect makes the sandbox's TCP connections to 198.18.0.0/15, which is
	// nobody's, arrive at listeners of this process.
	Redirect bool
	// Nameserver is the address that the sandbox's resolv.conf names; "" is none.
	Nameserver string
	// Serve is handed the sockets before any process runs, and returns at once.
	// The sandbox closes them after the last process has ended; Serve's side may
	// do so before.
	Serve func(Sockets) error
}

// Sockets belong to this process and listen inside a sandbox.
type Sockets struct {
	TCP []net.Listener // in the order of Network.TCP
	UDP []net.PacketConn
	// Redirected accept the redirected connections. Their original destination
	// is the socket option SO_ORIGINAL_DST or, where that is not set, the local
	// address.
	Redirected []net.Listener
	// AnyAddress: the kernel has no nftables. Connections to ports 80 and 443
	// alone are redirected, and the sandbox cannot listen there.
	AnyAddress bool
}

// A Mount shows a host path inside the sandbox.
type Mount struct {
	Source   string // absolute host path of a directory or regular file
	Dest     string // absolute path inside
	Writable bool
	// Copy gives the sandbox its own copy-on-write view of the directory Source,
	// which is never written.
	Copy bool
	// Give makes the sandbox's user the owner of what this process owns at and
	// below Source.
	Give bool
}

// Limits bound a sandbox. Every field must be positive; [Limits.Over] fills the
// unset ones.
type Limits struct {
	Memory     int64   `json:"memory"`      // bytes, swap included
	CPUs       float64 `json:"cpus"`        // cores
	Pids       int64   `json:"pids"`        // processes and threads
	Files      uint64  `json:"files"`       // open files per process
	LayerBytes int64   `json:"layer_bytes"` // what the sandbox may write over its root and its copies
	TmpBytes   int64   `json:"tmp_bytes"`   // /tmp, counted as memory
	ShmBytes   int64   `json:"shm_bytes"`   // /dev/shm, counted as memory
}

// DefaultLimits are what a task gets that asks for nothing.
func DefaultLimits() Limits {
	return Limits{
		Memory: 1 << 30, CPUs: 1, Pids: 256, Files: 4096,
		LayerBytes: 32 << 20, TmpBytes: 256 << 20, ShmBytes: 64 << 20,
	}
}

// Over returns l with its unset fields taken from base.
func (l Limits) Over(base Limits) Limits {
	set(&l.Memory, base.Memory)
	set(&l.CPUs, base.CPUs)
	set(&l.Pids, base.Pids)
	set(&l.Files, base.Files)
	set(&l.LayerBytes, base.LayerBytes)
	set(&l.TmpBytes, base.TmpBytes)
	set(&l.ShmBytes, base.ShmBytes)
	return l
}

func set[T int64 | uint64 | float64](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// Validate says which fields are not positive.
func (l Limits) Validate() error {
	var errs []error
	for name, ok := range map[string]bool{
		"memory": l.Memory > 0, "cpus": l.CPUs > 0, "pids": l.Pids > 0, "files": l.Files > 0,
		"layer_bytes": l.LayerBytes > 0, "tmp_bytes": l.TmpBytes > 0, "shm_bytes": l.ShmBytes > 0,
	} {
		if !ok {
			errs = append(errs, fmt.Errorf("limit %s is not positive", name))
		}
	}
	return errors.Join(errs...)
}

// A Process is one command inside a sandbox.
type Process struct {
	Args []string
	Env  []string // NAME=value over the sandbox's
	Dir  string   // absolute; "" means the sandbox's working directory

	Stdin io.Reader // nil is an empty input
	// Stdout and Stderr, when not nil, get all output as it comes, uncut, from
	// one goroutine each. An error from them stops the copy and not the process.
	Stdout, Stderr io.Writer
	// OutputBytes bounds what Exit keeps of each stream; 0 means 1 MiB.
	OutputBytes int64

	// Wall bounds the time from start to exit; it must be positive. At its end
	// every process of the sandbox gets SIGTERM and, after Grace (0 means 2 s),
	// SIGKILL.
	Wall  time.Duration
	Grace time.Duration
}

// Defaults of [Process].
const (
	DefaultOutputBytes = 1 << 20
	DefaultGrace       = 2 * time.Second
)
