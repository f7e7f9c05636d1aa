// Package workspace puts files where a component may see them, and takes them
// away again: materialization plans, the path policy for mounts, and bounded
// copies, digests and removals of directory trees that an untrusted agent may
// have shaped.
//
// Nothing here follows a symbolic link. Paths are resolved one name at a time
// below an open directory, so that no link and no race leads outside it.
package workspace
