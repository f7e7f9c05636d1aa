#!/bin/bash
# container-image.sh BINARY VERSION FILE
#
# Makes the container image of sbench, as which Kubernetes runs it: a minimal Debian trixie
# with containerd, runc, mke2fs and tini, and BINARY with the shim beside it over it in /usr/bin, for
# this machine's architecture. FILE becomes an OCI image layout archive with the name
# sbench.local/sbench:VERSION. No daemon takes part. The system is built once, and kept beside
# the archives of base-image.sh; equal systems and programs make equal archives.
#
# Needs what base-image.sh needs.
set -euo pipefail

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source-path=SCRIPTDIR source=oci-archive.sh
. "$here/oci-archive.sh"
# shellcheck source-path=SCRIPTDIR source=debian-root.sh
. "$here/debian-root.sh"

readonly suite=trixie
readonly image=sbench.local/system:trixie
readonly packages="ca-certificates containerd e2fsprogs runc tini"

# add_program BINARY VERSION FILE SYSTEM runs in a subshell of its own.
add_program() {
	local lower upper
	stage="$(mktemp -d "$TMPDIR/sbench-image.XXXXXXXX")"
	trap 'rm -rf -- "$stage"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	mkdir "$stage/system"
	tar -C "$stage/system" -xf "$4"
	lower="$(oci_take_layer "$stage/system" "$stage/layout")"
	install -D -m 755 -t "$stage/tree/usr/bin" -- "$1" "$(dirname -- "$1")/containerd-shim-sbench-v1"
	tar -C "$stage/tree" --format=ustar --sort=name --owner=0 --group=0 --numeric-owner --mode=go-w \
		--mtime=@0 -cf "$stage/layer.tar" usr/bin
	upper="$(oci_add_layer "$stage/layout" "$stage/layer.tar")"
	oci_write_index "$stage/layout" "sbench.local/sbench:${2//+/-}" "$(oci_arch "$(debian_arch)")" \
		1970-01-01T00:00:00Z / "$lower" "$upper" >/dev/null
	oci_pack "$stage/layout" "$stage/archive.tar"
	mv -f -- "$stage/archive.tar" "$3"
}

main() {
	local system
	if [ "${1:-} $#" = "--repack 2" ]; then
		repack "$2"
		return
	fi
	[ $# = 3 ] || die "usage: container-image.sh BINARY VERSION FILE"
	system="$(debian_archive system)"
	(add_program "$@" "$system")
}

main "$@"
