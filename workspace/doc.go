// Package workspace plans and writes the files that each component may see, and copies and
// digests, within bounds, directory trees that an untrusted agent may have created.
//
// No function follows a symbolic link in such a tree. Paths are resolved name by name below
// an open directory, so that no link or race leads outside it.
//
// A [Plan] says which files a component gets; plan.go makes plans, and planwrite.go writes them.
// tree.go walks over a tree, which [DigestTree] and [CopyTree] share. A [StoredTree] is a copy on the
// host, with a list of the owners and modes that the copy could not have (attributes.go).
package workspace
