#!/usr/bin/env bash
# without-hybrid.sh COMMAND...
#
# Runs a command where only one version of control groups is mounted. crun refuses a
# hybrid of both; there the second is unmounted, for this command and what it starts
# alone, which takes root, and an empty directory in memory takes its place: crun writes to
# it as to a control group, and never removes that. Elsewhere the command runs as it is.
set -euo pipefail

readonly unified=/sys/fs/cgroup/unified

if [ ! -d "$unified" ] || [ "$(id -u)" != 0 ]; then
	exec "$@"
fi
# shellcheck disable=SC2016 # the inner shell expands
exec unshare --mount --propagation private bash -euc 'umount "$1"; mount -t tmpfs without-hybrid "$1"; shift; exec "$@"' bash "$unified" "$@"
