#!/bin/bash
# bare.sh [--suite bookworm|trixie] TARGET...
#
# Runs each TARGET of make on a bare Debian, where nothing is installed but git, make and Go,
# in a fresh clone of HEAD, and prints how long it took: `TARGET: M min S s, exit status N`. What
# the target itself prints goes to TARGET.log in the current directory's runs/.
#
# The system is a directory with mount and process namespaces of its own, on this machine's kernel and
# network. For root. Needs mmdebstrap. As everywhere, apt's mirror is the one that this machine's apt
# is configured with, or SBENCH_DEBIAN_MIRROR; what this machine's administrator has made it trust
# (/usr/local/share/ca-certificates), the system trusts, too.
set -euo pipefail

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)"
export TMPDIR="${TMPDIR:-/var/tmp}"
readonly go=/usr/local/go
root=""

# make_system SUITE ROOT unpacks the system, with the clone in /root/sbench.
make_system() {
	mmdebstrap --quiet --variant=minbase --include=git,make,ca-certificates "$1" "$2" ${SBENCH_DEBIAN_MIRROR:+"$SBENCH_DEBIAN_MIRROR"} >&2
	if [ -d /usr/local/share/ca-certificates ]; then
		cp -rL /usr/local/share/ca-certificates "$2/usr/local/share/"
		TMPDIR=/tmp chroot "$2" update-ca-certificates >&2
	fi
	cp -L /etc/resolv.conf /etc/hosts "$2/etc/"
	mkdir -p "$2$go" "$2/old"
	git clone -q "$here" "$2/root/sbench"
}

# inside ROOT TARGET makes ROOT the root of this mount namespace and runs the target there.
inside() {
	local root="$1"
	mount --bind "$root" "$root"
	mount --bind -o ro "$go" "$root$go"
	mount -t proc proc "$root/proc"
	mount --rbind /sys "$root/sys"
	mount --rbind /dev "$root/dev"
	mount -t tmpfs -o mode=755 run "$root/run"
	cd "$root"
	pivot_root . old
	umount -l /old
	cd /root/sbench
	exec env -i HOME=/root PATH="$go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
		LANG=C.UTF-8 CI="${CI:-}" make "$2" </dev/null
}

main() {
	local suite=bookworm target began status
	if [ "${1:-}" = --inside ]; then
		inside "$2" "$3"
	fi
	if [ "${1:-}" = --suite ]; then
		suite="$2"
		shift 2
	fi
	mkdir -p runs
	for target in "$@"; do
		root="$(mktemp -d "$TMPDIR/sbench-bare.XXXXXX")"
		trap 'rm -rf --one-file-system "$root"' EXIT
		chmod 755 "$root"
		make_system "$suite" "$root"
		began="$SECONDS" status=0
		unshare --mount --propagation private --pid --fork --kill-child \
			"$here/scripts/hosts/bare.sh" --inside "$root" "$target" >"runs/$target.log" 2>&1 || status=$?
		printf '%s: %s min %s s, exit status %s\n' "$target" "$(((SECONDS - began) / 60))" "$(((SECONDS - began) % 60))" "$status"
		rm -rf --one-file-system "$root"
	done
}

main "$@"
