#!/bin/bash
# base-image.sh [--force]
#
# Builds the Debian bookworm base image, sbench.local/base:bookworm, as a
# one-layer OCI image layout archive, and prints the archive's path on stdout.
# Progress goes to stderr. A second call finds the archive and builds nothing;
# --force builds it again.
#
# The archive is ${SBENCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sbench}/images/
# base-bookworm-<arch>-<hash of the recipe>.oci.tar. It appears by a rename, so
# that a file of that name is complete; a lock lets two calls build it once.
#
# Needs mmdebstrap, tar, gzip and coreutils; debian-root.sh says where packages come from.
set -euo pipefail

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source-path=SCRIPTDIR source=oci-archive.sh
. "$here/oci-archive.sh"
# shellcheck source-path=SCRIPTDIR source=debian-root.sh
. "$here/debian-root.sh"

readonly suite=bookworm
readonly image=sbench.local/base:bookworm
readonly packages="bash ca-certificates gcc git libc6-dev make procps python-is-python3 python3 python3-pytest"

case "${1:-} $#" in
" 0" | "--force 1") debian_archive base "${1:-}" ;;
*) die "usage: base-image.sh [--force]" ;;
esac
