# shellcheck shell=bash
# debian-root.sh: functions that make minimal Debian systems with mmdebstrap. Sourced after
# oci-archive.sh. For build a script sets suite, image and packages, and may set hook, a shell command
# that changes the system in $1.
#
# Packages come from SBENCH_DEBIAN_MIRROR (a complete URI), or from where mmdebstrap takes a
# suite from by itself: the apt sources of this machine if they have it, else deb.debian.org.

# The same bytes wherever it runs: no locale, and no clamping but our own.
export LC_ALL=C
unset SOURCE_DATE_EPOCH
# On disk, not in memory, and not in a home, which apt's own user cannot enter.
export TMPDIR="${TMPDIR:-/var/tmp}"

# debian RELEASE TARGET OPTION... makes the system with mmdebstrap's OPTIONs, without manuals. As an
# ordinary user it works in a user namespace.
debian() {
	local release="$1" target="$2" line args=()
	shift 2
	command -v mmdebstrap >/dev/null 2>&1 || die "mmdebstrap is missing: apt-get install mmdebstrap"
	if command -v apt-config >/dev/null 2>&1; then # this machine's way to its mirror
		while IFS= read -r line; do args+=("--aptopt=$line"); done < <(
			apt-config dump | grep -E '^Acquire::(https?::Proxy|Check-Valid-Until|Check-Date|Retries|ForceIPv[46]) '
		)
	fi
	for line in man locale info doc; do args+=("--dpkgopt=path-exclude=/usr/share/$line/*"); done
	mmdebstrap --quiet --variant=minbase --dpkgopt=force-unsafe-io "${args[@]}" \
		--dpkgopt='path-include=/usr/share/doc/*/copyright' "$@" "$release" "$target" \
		${SBENCH_DEBIAN_MIRROR:+"$SBENCH_DEBIAN_MIRROR"} >&2
}

# trim ROOT BEFORE RELEASE removes what a task never needs and what differs from build to build or tells of
# the machine that built it. What the build has written (after BEFORE, in seconds) gets the time of the
# newest file that a package brought, and everything else keeps its time, because python's compiled
# files name the time of their source.
trim() {
	local root="$1" epoch name own
	find "$root/usr/share/doc" -mindepth 1 -type d -empty -delete
	rm -rf "$root"/usr/share/lintian "$root"/usr/bin/*-lto-dump-* \
		"$root"/tmp/* "$root"/var/tmp/* "$root"/run/* "$root"/var/lib/dpkg/*-old \
		"$root"/etc/*- "$root"/etc/apt/apt.conf.d/*mmdebstrap "$root"/etc/dpkg/dpkg.cfg.d/*mmdebstrap \
		"$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/etc/apt/sources.list.d/* "$root"/usr/sbin/policy-rc.d
	[ ! -e "$root/sbin/start-stop-daemon.REAL" ] || mv "$root/sbin/start-stop-daemon.REAL" "$root/sbin/start-stop-daemon"
	find "$root/var/cache" "$root/var/log" -type f -delete
	printf 'deb http://deb.debian.org/%s main\n' "debian $3" "debian $3-updates" "debian-security $3-security" >"$root/etc/apt/sources.list"
	printf 'path-exclude=/usr/share/%s/*\n' man locale info doc >"$root/etc/dpkg/dpkg.cfg.d/sbench"
	printf 'path-include=/usr/share/doc/*/copyright\n' >>"$root/etc/dpkg/dpkg.cfg.d/sbench"
	# Empty, so that a runtime can bind its own over them on a read-only root.
	for name in hosts hostname resolv.conf machine-id; do
		rm -f "$root/etc/$name"
		: >"$root/etc/$name"
	done
	# The third field is the day of the build.
	sed -i -E 's/^([^:]*:[^:]*:)[0-9]+:/\119500:/' "$root/etc/shadow"
	# What is mounted there is the host's.
	own=("$root" -xdev \( -path "$root/dev" -o -path "$root/proc" -o -path "$root/sys" \) -prune -o)
	epoch="$(find "${own[@]}" -type f ! -newermt "@$2" -printf '%T@\n' | awk '$1 > max { max = $1 } END { printf "%d\n", max }')"
	find "${own[@]}" -newermt "@$epoch" -exec touch -h -d "@$epoch" {} +
}

# build ARCHIVE runs in a subshell of its own. With slack, because what mmdebstrap writes may carry the
# time of its start.
build() {
	local archive="$1" before layer
	: "${here:?}" "${suite:?}" "${image:?}" "${packages:?}" # set by the script
	before="$(($(date +%s) - 60))"
	unfinished="$(dirname -- "$archive")/.new.$$"
	stage="$(mktemp -d "$TMPDIR/sbench-image.XXXXXXXX")"
	trap 'rm -rf --one-file-system -- "$stage" "$unfinished"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	chmod 0755 "$stage"
	say "building debian $suite for $image (about a minute)"
	debian "$suite" "$stage/layer.tar" --include="${packages// /,}" --skip=cleanup,output/dev ${hook:+--customize-hook="$hook"} \
		--customize-hook="bash -euo pipefail -c '. \"$here/debian-root.sh\"; trim \"\$1\" $before $suite' trim \"\$1\""
	mkdir "$stage/dev" # mmdebstrap writes none without devices, and a runtime mounts over it
	tar -rf "$stage/layer.tar" -C "$stage" --owner=0 --group=0 --numeric-owner --mode=755 --mtime=@0 ./dev
	say "wrapping the root filesystem ($(du -h "$stage/layer.tar" | cut -f1)) as an oci archive"
	layer="$(oci_add_layer "$stage/layout" "$stage/layer.tar")"
	oci_write_index "$stage/layout" "$image" "$(oci_arch "$(debian_arch)")" 1970-01-01T00:00:00Z / "$layer" >/dev/null
	oci_pack "$stage/layout" "$unfinished"
	mv -f -- "$unfinished" "$archive"
}

# debian_archive NAME [--force] prints the path of the archive, after building it if it is not
# there. It appears by a rename, so that a file of that name is complete; a lock lets two calls
# build it once.
debian_archive() {
	local force="${2:-}" archive images
	umask 022
	images="$(cache_dir)"
	archive="$images/$1-$suite-$(debian_arch)-$(recipe_hash "$0" "$here/debian-root.sh" "$here/oci-archive.sh").oci.tar"
	if [ -n "$force" ] || [ ! -f "$archive" ]; then
		mkdir -p "$images"
		exec 9>"$images/.lock"
		flock -n 9 || {
			say "another build holds the lock: waiting for it"
			flock 9
		}
		if [ -n "$force" ] || [ ! -f "$archive" ]; then
			rm -f -- "$images"/.new.*
			(build "$archive")
			say "built $image in ${SECONDS}s"
		fi
		exec 9>&-
	fi
	printf '%s\n' "$archive"
}
