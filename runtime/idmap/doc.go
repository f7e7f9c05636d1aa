// Package idmap gives sandboxes user and group ids of their own without changing
// files on disk. On disk every tree keeps the ids 0 to 65535. A sandbox sees it
// through mounts that shift these ids into a range of host ids that is used for
// nothing else (mount_setattr(2), MOUNT_ATTR_IDMAP).
//
// The package needs the capabilities of the host's root, and is of no use to a
// process in a user namespace.
package idmap
