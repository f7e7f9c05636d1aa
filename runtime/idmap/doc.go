// Package idmap gives sandboxes user and group ids of their own without
// changing what is on disk: there every tree keeps the ids 0 to 65535, and a
// sandbox sees it through mounts that shift them into a range of the host's ids
// that nobody else has (mount_setattr(2), MOUNT_ATTR_IDMAP).
//
// It needs the capabilities of the host's root. It does nothing for a process
// that is in a user namespace itself.
package idmap
