// Package idmap gives sandboxes user and group ids of their own without changing files
// on disk, which keep the ids 0 to 65535. A sandbox sees them through mounts that shift
// these ids into a range of host ids that is used for nothing else (mount_setattr(2),
// MOUNT_ATTR_IDMAP).
//
// The package needs the capabilities of the host's root, and does not work in a user
// namespace.
package idmap
