#!/bin/bash
# base-image.sh
#
# Builds the Debian bookworm base image, sbench.local/base:bookworm, as a one-layer OCI image layout
# archive, and prints the archive's path on stdout. Progress goes to stderr. The archive is
# ${SBENCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sbench}/images/base-bookworm-ARCH-HASH.oci.tar, with a
# hash of the recipe; a second call finds it and builds nothing, and two calls build it once.
set -euo pipefail

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source-path=SCRIPTDIR source=debian.sh
. "$here/debian.sh"

[ $# = 0 ] || die "usage: base-image.sh"
umask 022
images="$(cache_dir)/images"
archive="$images/base-bookworm-$(debian_arch)-$(cat "$0" "$here/debian.sh" | sha256 | cut -c 1-16).oci.tar"
if [ ! -f "$archive" ]; then
	mkdir -p "$images"
	exec 9>"$images/.lock"
	flock -n 9 || { say "another build holds the lock: waiting for it"; flock 9; }
	if [ ! -f "$archive" ]; then
		rm -f -- "$images"/.new.*
		debian_image bookworm sbench.local/base:bookworm \
			"bash ca-certificates gcc git libc6-dev make procps python-is-python3 python3 python3-pytest" "$archive"
		say "built in ${SECONDS}s"
	fi
fi
printf '%s\n' "$archive"
