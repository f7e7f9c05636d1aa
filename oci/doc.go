// Package oci builds locked-down OCI runtime specifications. It is pure:
// options in, specification out. It never asks a daemon, a file or the host.
//
// [New] starts from the strictest specification sbench uses and options open
// or size single points of it. What an option cannot do exactly as asked is an
// error, never a silent default, and a specification that lacks one of its
// limits is refused.
//
// Sources of the single lines: the OCI runtime specification 1.0.2 (the newest
// that runc 1.1 reads), and the kernel's manual pages where they are named.
package oci
