package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"
)

// Errors that callers distinguish with errors.Is. An error, unlike an [Exit], means that
// nothing was measured.
var (
	// ErrUnavailable means that the daemon behind the sandboxes does not answer, or
	// that this host cannot run sandboxes.
	ErrUnavailable = errors.New("runtime unavailable")
	// ErrNotFound means that there is no such image.
	ErrNotFound = errors.New("not found")
	// ErrInvalid means that a setting chosen by the operator cannot be used.
	ErrInvalid = errors.New("cannot be used")
	// ErrSpent means that a one-shot sandbox was asked to run a second process.
	ErrSpent = errors.New("one-shot sandbox has run its process")
	// ErrClosed means that the sandbox was closed or has lost its first process.
	ErrClosed = errors.New("sandbox is closed")
	// ErrNotStarted means that the process could not be executed: there is no such file, or
	// it is not executable. The command or the image is at fault, never the host.
	ErrNotStarted = errors.New("process was not started")
	// ErrDenied means that a [CommandPolicy] refused the command; see [Observer].
	ErrDenied = errors.New("command denied by policy")
	// ErrStillAlive means that processes survived being killed. What the sandbox
	// wrote may still be changing and must not be used.
	ErrStillAlive = errors.New("processes survived")
)

// A Sandbox runs processes in one isolated environment. Its methods are safe for concurrent
// use. Whoever creates it closes it.
type Sandbox interface {
	// Exec runs p to completion. A process that fails, is killed or hits a limit is a
	// result; err means that there is no trustworthy Exit. When Exec returns, all processes
	// that p started have ended, or are suspended by Config.KeepProcesses, unless err is
	// ErrStillAlive. Cancelling ctx kills p.
	//
	// Calls are serialized. A one-shot sandbox takes one call.
	Exec(ctx context.Context, p Process) (Exit, error)
	// Path returns the host path of the directory dir, an absolute path inside the sandbox,
	// as a one-shot sandbox left it in its root file system, without mounts. It follows no
	// symbolic link: the error is fs.ErrNotExist if any part of dir is not a directory. It
	// fails before the process has ended; the path is valid until Close.
	Path(dir string) (string, error)
	// Changes returns what a one-shot sandbox with Config.Machine has changed in its image. It
	// fails before the process has ended; the paths are valid until Close.
	Changes() (Changes, error)
	// Close waits for a running Exec, kills what still runs, and removes everything except
	// what the caller provided. It may be called again, and cleans up even if ctx is
	// cancelled.
	Close(ctx context.Context) error
}

// Changes are what a sandbox wrote over its image's files.
type Changes struct {
	// Dir is the host path of an upper directory of overlayfs: of each directory with a change
	// it has only the changed entries, and device nodes 0/0 for those that were removed.
	Dir string
	// Below is the UpperDir of the sandbox's image: Dir lies over it. "" means none.
	Below string
	// Mounts are the absolute paths in the sandbox at which something was mounted. What Dir
	// has there is not the process's.
	Mounts []string
}

// A Volume is a writable directory whose size and number of files are bounded where the host
// can enforce that. Whoever makes it closes it.
type Volume interface {
	// Path is the absolute host path of the directory.
	Path() string
	// Close removes the volume. Sandboxes that mount it must be closed first.
	Close() error
}

// VolumeConfig sizes a volume. Both fields must be positive.
type VolumeConfig struct {
	Bytes  int64
	Inodes int64 // files, directories and links
}

// An Image is a root file system that is present and unpacked on this host.
type Image struct {
	Ref      string   `json:"ref"`      // the full reference, as the daemon knows it
	Digest   string   `json:"digest"`   // of the manifest or index the reference points to
	Platform string   `json:"platform"` // os/architecture
	ChainID  string   `json:"chain_id"` // identifies the unpacked file system (image-spec, config.md)
	Env      []string `json:"env"`      // NAME=value
	User     string   `json:"user"`     // uid[:gid] or names; "" means root
	Workdir  string   `json:"workdir"`  // "" means /
	// Entrypoint and Command are the words of the command that it is made for.
	Entrypoint []string `json:"entrypoint"`
	Command    []string `json:"command"`
	// Health is the command of its health check, which succeeds once what the entry point starts can be used.
	Health []string `json:"health"`
	// HealthWait is how long the health check may fail before the image counts as broken.
	HealthWait time.Duration `json:"-"`
	// Shell and OnBuild are for images that are built from it: the words before a command line, and instructions.
	Shell   []string `json:"-"`
	OnBuild []string `json:"-"`
	// UpperDir is the host path of a directory as [Changes] has one. Its contents lie over the files
	// of the image in sandboxes and views. "" means none. The directory must not change until the
	// sandboxes and views are closed.
	UpperDir string `json:"-"`
}

// A Layer is a file system layer for a new image.
type Layer struct {
	Content   io.Reader // a tar archive compressed with zstd (image-spec, layer.md)
	Digest    string    // of Content
	DiffID    string    // of the archive
	Size      int64     // of Content, in bytes
	CreatedBy string    // for people
}

// A Commit describes an image that is made from another.
type Commit struct {
	Base   string // full reference of an image that is present; "" for an image without files
	As     string // the new image's; another image may lose it
	Key    string // what the image was made from; see Built in package runtime/images
	Layers []Layer
	// Change changes the configuration; nil leaves it.
	Change func(*dockerspec.DockerOCIImageConfig)
}

// A View is read access to an image's files without running a process. Whoever makes it
// closes it.
type View interface {
	// Root returns the image's file system. It is closed with the view.
	Root() *os.Root
	// Close releases the view. Root must not be used afterwards.
	Close() error
}

// Isolation is what keeps a sandbox apart from the host's kernel. The stricter one compares greater.
type Isolation string

// The kinds of isolation.
const (
	Container Isolation = "container" // namespaces, filters and control groups of the host's kernel
	GVisor    Isolation = "gvisor"    // a kernel of its own in user space, which runsc brings
)

// Config describes a sandbox. Image or Base must be given, and every field of
// Limits must be positive.
type Config struct {
	Name  string // for people, in labels; need not be unique
	Image Image
	// Isolation is the least that the sandbox gets; "" leaves it to the engine.
	Isolation Isolation
	// Base is a one-shot sandbox of the same engine that has run its process. The root file
	// system that this process left is read-only below the new sandbox. Base must stay open until
	// the new sandbox is closed.
	Base Sandbox

	Persistent bool // takes any number of Exec calls, otherwise one
	// KeepProcesses suspends the processes that the process of a one-shot sandbox has left, as soon
	// as they hardly need CPU time or the layer is full, or after five seconds. They run again,
	// within the same limits, as soon as a sandbox is created with this one as NetworkOf. They are
	// killed if the process reached its wall time, or if they cannot be suspended.
	KeepProcesses bool
	WritableRoot  bool // otherwise only tmpfs and writable mounts are writable
	// Machine implies WritableRoot and makes /tmp and /run directories of the root file system
	// instead of file systems in memory.
	Machine bool
	// ReadOnly are absolute paths of the root file system, without links on the way, that
	// nothing in the sandbox can change; those that are not there do not count.
	ReadOnly     []string
	Mounts       []Mount
	Capabilities []string // see oci.Config
	// AllFiles lets root in the sandbox read and write all its files, as on a machine
	// (CAP_DAC_OVERRIDE). It has no effect where the sandbox has no user namespace of its own.
	AllFiles bool
	// IsolateProcesses keeps the sandbox's processes from accessing each other's memory; see
	// oci.Config.
	IsolateProcesses bool
	// SealOutput makes standard output a socket, which cannot be opened. So no process of the
	// sandbox can write to another's output through /proc, even as the same user.
	SealOutput bool

	Limits  Limits
	Env     []string // NAME=value; overrides the image's
	Workdir string   // absolute; "" means the image's
	User    string   // uid[:gid] or names; "" means the image's
	// Become are further users, as in User. If there are any, every process starts as root, and must be a program of
	// sbench's that becomes one of them or User. It finds their ids in the variable UsersVariable.
	Become  []string
	Network *Network // nil means a loopback interface on which sbench does not listen
	// NetworkOf is a sandbox of the same engine. The new sandbox shares its network namespace, the
	// UNIX sockets in its files, except below ReadOnly and mounts of the new sandbox, and, where it
	// has its own, its user namespace. NetworkOf must stay open until the new sandbox is
	// closed. Both sandboxes reach the sockets of Network, which cannot have Redirect.
	NetworkOf Sandbox
	Hosts     []string // further names of 127.0.0.1

	Observer Observer // of the sandbox's processes; nil for none
}

// UsersVariable holds a JSON object: a passwd.User for each name in Config.Become, and for "", which is Config.User.
const UsersVariable = "SBENCH_USERS"

// A Network describes sbench's sockets on a sandbox's loopback interface. The sandbox has no
// other interface and no route, so it can reach only these sockets. The zero Network has
// none.
type Network struct {
	// TCP and UDP are host:port addresses on which sbench listens in the sandbox.
	TCP, UDP []string
	// Redirect sends the sandbox's TCP connections to 198.18.0.0/15 to a listener of sbench.
	// The block is reserved for benchmarking network devices (RFC 2544), so no server on the
	// internet has an address in it.
	Redirect bool
	// Nameserver is the address in the sandbox's resolv.conf; "" means none.
	Nameserver string
	// Serve is called with the sockets before any process runs. It must return at once and
	// serve them in the background. The sandbox closes them after its last process has
	// ended; they may be closed earlier.
	Serve func(Sockets) error
}

// Access is open network access for one sandbox.
type Access struct {
	Network *Network // nil for none
	Env     []string
	Mounts  []Mount
	// Close is called after the sandbox. It returns how many requests were refused or failed.
	Close func() (unserved int64, err error)
}

// Sockets are open inside a sandbox's network namespace and belong to sbench's process.
type Sockets struct {
	TCP []net.Listener   // in the order of Network.TCP
	UDP []net.PacketConn // in the order of Network.UDP
	// Redirected accepts the redirected connections; nil without Network.Redirect. A connection's
	// original destination is its socket option SO_ORIGINAL_DST.
	Redirected net.Listener
}

// A Mount makes a host path visible inside the sandbox.
type Mount struct {
	Source string // absolute host path of a directory or regular file
	// Left, instead of Source, is a one-shot sandbox of the same engine that has run its process.
	// Its root file system is mounted without its mounts. If the mount is Writable, what is
	// written there goes to the new sandbox's own layer.
	Left     Sandbox
	Dest     string // absolute path inside
	Writable bool   // the zero value is read-only
	// Copy gives the sandbox a copy-on-write view of the directory Source, which is never
	// written to.
	Copy bool
	// Chown makes the sandbox's user the owner of every file at and below Source that belongs to
	// the user of this process. Files of another user, such as those copied out of an image, keep
	// their owners. Of a Copy, only the top directory changes: it gets the owner and mode 0755.
	Chown bool
}

// Limits bound a sandbox. To create one, every field must be positive; [Limits.Over] fills
// in those that are 0.
type Limits struct {
	Memory     int64   `json:"memory"`      // bytes, swap included
	CPUs       float64 `json:"cpus"`        // cores
	Pids       int64   `json:"pids"`        // processes and threads
	Files      uint64  `json:"files"`       // open files per process
	LayerBytes int64   `json:"layer_bytes"` // bytes written over the root and over mounts with Copy
	TmpBytes   int64   `json:"tmp_bytes"`   // bytes in /tmp, which count as memory
	ShmBytes   int64   `json:"shm_bytes"`   // bytes in /dev/shm, which count as memory
}

// DefaultLimits returns the limits of a task that asks for none.
func DefaultLimits() Limits {
	return Limits{
		Memory: 1 << 30, CPUs: 1, Pids: 256, Files: 4096,
		LayerBytes: 32 << 20, TmpBytes: 256 << 20, ShmBytes: 64 << 20,
	}
}

// Over returns l with each field that is 0 taken from base.
func (l Limits) Over(base Limits) Limits {
	return Limits{
		Memory: cmp.Or(l.Memory, base.Memory), CPUs: cmp.Or(l.CPUs, base.CPUs), Pids: cmp.Or(l.Pids, base.Pids), Files: cmp.Or(l.Files, base.Files),
		LayerBytes: cmp.Or(l.LayerBytes, base.LayerBytes), TmpBytes: cmp.Or(l.TmpBytes, base.TmpBytes), ShmBytes: cmp.Or(l.ShmBytes, base.ShmBytes),
	}
}

// Validate returns an error that names every field that is not positive, or nil.
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

// A Process describes a command to run inside a sandbox. Args and Wall are required.
type Process struct {
	Args []string // the first is looked up in the PATH of the environment
	Env  []string // NAME=value; overrides the sandbox's
	Dir  string   // absolute; "" means the sandbox's working directory

	Stdin io.Reader // nil is an empty input
	// Stdout and Stderr, if not nil, receive the whole output as it is written, from one
	// goroutine each. An error from one ends copying to it, not the process.
	Stdout, Stderr io.Writer
	// OutputBytes bounds what Exit keeps of each stream; 0 means DefaultOutputBytes.
	OutputBytes int64

	// Wall bounds the time from start to exit and must be positive. When it is over, every
	// process of the sandbox receives SIGTERM and, after Grace, SIGKILL. A Grace of 0 means
	// DefaultGrace.
	Wall  time.Duration
	Grace time.Duration
	// Waited returns how much of the time so far does not count for Wall. Nil means that all of it counts.
	Waited func() time.Duration
}

// Over returns a channel that is closed when Wall is over for a process that starts now, unless ctx ends first.
func (p Process) Over(ctx context.Context) <-chan struct{} {
	begun, over := time.Now(), make(chan struct{})
	go func() {
		for left := p.Wall; left > 0; {
			select {
			case <-time.After(left):
			case <-ctx.Done():
				return
			}
			if left = p.Wall - time.Since(begun); p.Waited != nil {
				left += p.Waited()
			}
		}
		close(over)
	}()
	return over
}

// Defaults for the fields of [Process] that are 0.
const (
	DefaultOutputBytes = 1 << 20 // bytes of each stream
	DefaultGrace       = 2 * time.Second
)
