#!/bin/bash
# container-image.sh BINARY VERSION FILE
#
# Makes the container image of sbench, as which Kubernetes runs it: a minimal Debian trixie
# with containerd, runc, mke2fs and tini, and BINARY with the shim beside it in /usr/bin, for this
# machine's architecture. FILE becomes an OCI image layout archive with the name
# sbench.local/sbench:VERSION. No daemon takes part. Equal packages and programs make equal archives.
#
# Needs what base-image.sh needs.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=debian.sh
. "$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)/debian.sh"

[ $# = 3 ] || die "usage: container-image.sh BINARY VERSION FILE"
programs="$(cd -- "$(dirname -- "$1")" && pwd)"
debian_image trixie "sbench.local/sbench:${2//+/-}" "ca-certificates containerd e2fsprogs runc tini" "$3" \
	"install -m 755 -t \"\$1/usr/bin\" '$programs/sbench' '$programs/containerd-shim-sbench-v1'"
