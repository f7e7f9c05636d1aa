// Package workspace plans and writes the files that each component may see, and copies and
// digests, within bounds, directory trees that an untrusted agent may have created.
//
// No function follows a symbolic link in such a tree. Paths are resolved name by name below
// an open directory, so that no link or race leads outside it.
package workspace
