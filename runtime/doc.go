// Package runtime is the contract between sbench and whatever isolates a
// process: what a sandbox is made from, what a process may use, and how its end
// is told.
//
// The nouns are the field's: an image has a reference, a digest and a root file
// system; a volume is a bounded piece of writable disk; a sandbox runs processes
// on top of an image or of another, stopped sandbox; an exit says how a process
// ended and what it used.
//
// A sandbox is one-shot or persistent. A one-shot sandbox runs one process, as
// its first, and everything dies with it. A persistent one is created once and
// runs any number, one after the other; between two of them nothing but its idle
// first process is alive.
//
// Package runtime/containerd implements the contract; package runtime/fake
// imitates it for tests; package runtime/runtimetest holds the suite that both
// must pass.
package runtime
