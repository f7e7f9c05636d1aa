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

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source-path=SCRIPTDIR source=oci-archive.sh
. "$here/oci-archive.sh"
# shellcheck source-path=SCRIPTDIR source=debian-root.sh
. "$here/debian-root.sh"

[ $# = 3 ] || die "usage: container-image.sh BINARY VERSION FILE"
readonly suite=trixie
readonly image="sbench.local/sbench:${2//+/-}"
readonly packages="ca-certificates containerd e2fsprogs runc tini"
programs="$(cd -- "$(dirname -- "$1")" && pwd)"
readonly hook="install -m 755 -t \"\$1/usr/bin\" '$programs/sbench' '$programs/containerd-shim-sbench-v1'"
(build "$3")
