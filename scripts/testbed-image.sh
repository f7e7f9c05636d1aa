#!/bin/bash
# testbed-image.sh [--force]
#
# Builds sbench.local/repo-patch-smoke:latest, the image of the pack
# benchmarks/repo-patch-smoke, as an OCI image layout archive, and prints the
# archive's path on stdout. Progress goes to stderr. A second call builds nothing
# unless the base image or a file of the pack has changed; --force builds anyway.
#
# The image is the base image's layer, byte for byte, under a second layer with
# /testbed, which the pack's make-testbed.sh DIR fills: a git repository, owned
# by root. Its index is written anew without what differs from build to build.
# Without a make-testbed.sh it says so, prints nothing, and exits 0.
#
# It calls base-image.sh; the archive lies beside that one's, as
# repo-patch-smoke-<arch>-<hash of base, pack and recipe>.oci.tar.
set -euo pipefail

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source-path=SCRIPTDIR source=oci-archive.sh
. "$here/oci-archive.sh"

readonly image=sbench.local/repo-patch-smoke:latest
readonly pack="$here/../benchmarks/repo-patch-smoke"
# When the files in /testbed say that they were written.
readonly epoch=1700000000

# make_testbed DIR fills DIR/testbed.
make_testbed() {
	local clean=(env -i PATH="$PATH" HOME="$1" TMPDIR="$1" LC_ALL=C TZ=UTC GIT_CONFIG_NOSYSTEM=1)
	mkdir "$1/testbed"
	"${clean[@]}" bash "$pack/make-testbed.sh" "$1/testbed" >&2
	[ -e "$1/testbed/.git" ] || die "make-testbed.sh left no git repository"
	# The index holds inode numbers and times of this machine's disk.
	rm -f "$1/testbed/.git/index"
	"${clean[@]}" git -C "$1/testbed" read-tree HEAD
}

# build ARCHIVE BASE ARCH runs in a subshell of its own.
build() {
	local archive="$1" base="$2" arch="$3" lower upper
	stage="$(mktemp -d "$(dirname -- "$archive")/.testbed.XXXXXXXX")"
	trap 'rm -rf -- "$stage"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	mkdir -p "$stage/base" "$stage/tree" "$stage/layout/blobs/sha256"
	tar -C "$stage/base" -xf "$base"
	lower="$(oci_take_layer "$stage/base" "$stage/layout")"
	make_testbed "$stage/tree"
	tar -C "$stage/tree" --format=posix --sort=name --owner=0 --group=0 --numeric-owner \
		--pax-option='exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime,delete=mtime' \
		--mtime="@$epoch" --mode='u+rw,go+r,go-w,a+X' -cf "$stage/layer.tar" ./testbed
	upper="$(oci_add_layer "$stage/layout" "$stage/layer.tar")"
	oci_write_index "$stage/layout" "$image" "$(oci_arch "$arch")" \
		"$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)" /testbed "$lower" "$upper" >/dev/null
	oci_pack "$stage/layout" "$stage/archive.tar"
	mv -f -- "$stage/archive.tar" "$archive"
}

# fingerprint BASE prints a hash of everything that the archive is made of.
fingerprint() {
	{
		cat -- "$here/testbed-image.sh" "$here/oci-archive.sh"
		tar -xOf "$1" --occurrence=1 index.json
		cd "$pack" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
	} | sha256sum | cut -c1-16
}

main() {
	local force="" base archive arch
	umask 022
	case "${1:-}" in
	"") ;;
	--force) force=1 ;;
	*) die "usage: testbed-image.sh [--force]" ;;
	esac
	if [ ! -f "$pack/make-testbed.sh" ]; then
		say "no benchmarks/repo-patch-smoke/make-testbed.sh: skipping $image"
		return
	fi
	base="$("$here/base-image.sh")"
	arch="$(debian_arch)"
	archive="$(cache_dir)/repo-patch-smoke-$arch-$(fingerprint "$base").oci.tar"
	if [ -n "$force" ] || [ ! -f "$archive" ]; then
		exec 9>"$(cache_dir)/.lock"
		flock 9
		if [ -n "$force" ] || [ ! -f "$archive" ]; then
			rm -rf -- "$(cache_dir)"/.testbed.*
			say "building $image on the base image"
			(build "$archive" "$base" "$arch")
			say "built $image in ${SECONDS}s"
		fi
		exec 9>&-
	fi
	printf '%s\n' "$archive"
}

main "$@"
