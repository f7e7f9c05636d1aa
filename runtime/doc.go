// Package runtime is the contract between sbench and whatever isolates a process:
// what a sandbox is made from, what a process may use, and how its end is reported.
//
// An image has a reference, a digest and a root file system. A volume is a writable
// directory of bounded size. A sandbox runs processes on an image, or on another sandbox
// that has stopped. An exit says how a process ended and what it used.
//
// A one-shot sandbox runs one process, the first of its PID namespace, and everything in the
// sandbox dies with it. A persistent sandbox is created once and runs any number of
// processes, one after another; between them only its idle first process is alive.
//
// Throughout, an error means that sbench could not measure. A process that fails, is killed
// or reaches a limit is a result: an [Exit].
//
// Package runtime/sandbox implements the contract on containerd, and package runtime/host opens
// this host for it. Package internal/test/fake imitates it for tests. Package
// internal/test/runtimetest holds the test suite that both implementations must pass.
package runtime
