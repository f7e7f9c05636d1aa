# shellcheck shell=bash
# debian-root.sh: functions that make an image of a minimal Debian system, with one layer.
# Sourced, after oci-archive.sh, by scripts that set here, suite, image and packages, and
# pass on `--repack BEFORE` to repack.

# The same bytes wherever it runs: no locale, and no clamping but our own.
export LC_ALL=C
unset SOURCE_DATE_EPOCH
# On disk, not in memory, and not in a home, which apt's own user cannot enter.
export TMPDIR="${TMPDIR:-/var/tmp}"

readonly keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# apt_sources prints one-line apt sources for the suite: this machine's own if
# it has them, else the ones that Debian ships.
apt_sources() {
	: "${here:?}" "${suite:?}" "${image:?}" "${packages:?}" # set by the script
	local found="" option=""
	[ ! -r "$keyring" ] || option="[signed-by=$keyring] "
	if [ -n "${SBENCH_DEBIAN_MIRROR:-}" ]; then
		printf 'deb %s%s %s main\n' "$option" "$SBENCH_DEBIAN_MIRROR" "$suite"
		return
	fi
	if command -v apt-get >/dev/null 2>&1; then
		found="$(apt-get indextargets --format "\$(REPO_URI) \$(RELEASE) \$(COMPONENT)" 'Created-By: Packages' 2>/dev/null |
			awk -v s="$suite" -v o="$option" '
				$3 == "main" && ($2 == s || $2 == s "-updates" || $2 == s "-security") && !seen[$1 $2]++ {
					print "deb " o $1 " " $2 " main"
				}')" || found=""
	fi
	# A source of updates alone (an Ubuntu or a newer Debian has none) is no base.
	if grep -q " $suite main\$" <<<"$found"; then
		printf '%s\n' "$found"
	else
		default_sources "$option"
	fi
}

# default_sources OPTION prints what Debian itself ships in its sources.
default_sources() {
	printf 'deb %s%s %s main\n' \
		"$1" http://deb.debian.org/debian "$suite" \
		"$1" http://deb.debian.org/debian "$suite-updates" \
		"$1" http://deb.debian.org/debian-security "$suite-security"
}

# apt_options prints the settings of this machine's apt that decide how its
# mirror is reached, one `Name "value";` a line.
apt_options() {
	command -v apt-config >/dev/null 2>&1 || return 0
	apt-config dump | grep -E '^Acquire::(https?::Proxy|Check-Valid-Until|Check-Date|Retries|ForceIPv[46]) ' || true
}

# bootstrap_mmdebstrap TARGET MODE [FORMAT] writes the root filesystem to TARGET.
bootstrap_mmdebstrap() {
	local target="$1" mode="$2" format="${3:-directory}" line args=()
	while IFS= read -r line; do
		[ -z "$line" ] || args+=("--aptopt=$line")
	done < <(apt_options)
	for line in 'usr/share/man' 'usr/share/locale' 'usr/share/info' 'usr/share/doc'; do
		args+=("--dpkgopt=path-exclude=/$line/*")
	done
	args+=('--dpkgopt=path-include=/usr/share/doc/*/copyright' '--dpkgopt=force-unsafe-io')
	apt_sources | mmdebstrap --quiet --mode="$mode" --variant=minbase --format="$format" \
		--include="${packages// /,}" \
		"${args[@]}" "$suite" "$target" -
}

bootstrap_debootstrap() { # TARGET
	local source mirror
	source="$(apt_sources | awk -v s="$suite" '$(NF-1) == s && !n++')"
	mirror="$(sed -E 's/^deb (\[[^]]*\] )?([^ ]+) .*/\2/' <<<"$source")"
	debootstrap --variant=minbase --include="${packages// /,}" "$suite" "$1" "$mirror" >&2
}

# trim ROOT removes what a task never needs and what differs from build to
# build or tells of the machine that built it.
trim() {
	local root="$1" day
	find "$root/usr/share/doc" -mindepth 1 ! -type d ! -name copyright -delete
	find "$root/usr/share/doc" -mindepth 1 -type d -empty -delete
	rm -rf "$root"/usr/share/man/* "$root"/usr/share/info/* "$root"/usr/share/locale/* \
		"$root"/usr/share/lintian "$root"/usr/bin/*-lto-dump-* \
		"$root"/tmp/* "$root"/var/tmp/* "$root"/run/* "$root"/var/lib/dpkg/*-old \
		"$root"/etc/*- "$root"/etc/apt/apt.conf.d/99mmdebstrap "$root"/etc/dpkg/dpkg.cfg.d/99mmdebstrap \
		"$root"/etc/apt/sources.list.d/*
	find "$root/var/cache" "$root/var/log" "$root/var/lib/apt/lists" -type f -delete
	default_sources "" >"$root/etc/apt/sources.list"
	printf 'path-exclude=/usr/share/%s/*\n' man locale info doc >"$root/etc/dpkg/dpkg.cfg.d/sbench"
	printf 'path-include=/usr/share/doc/*/copyright\n' >>"$root/etc/dpkg/dpkg.cfg.d/sbench"
	# Empty, so that a runtime can bind its own over them on a read-only root.
	local name
	for name in hosts hostname resolv.conf; do
		rm -f "$root/etc/$name"
		: >"$root/etc/$name"
	done
	: >"$root/etc/machine-id"
	# The third field is the day of the build.
	day=19500
	sed -i -E "s/^([^:]*:[^:]*:)[0-9]+:/\1$day:/" "$root/etc/shadow"
	chmod 1777 "$root/tmp" "$root/var/tmp"
}

# epoch_of ROOT BEFORE prints the newest time, in seconds, that a file which
# was not written by the build (older than BEFORE) has.
epoch_of() {
	find "$1" -xdev -type f ! -newermt "@$2" -printf '%T@\n' | awk '$1 > max { max = $1 } END { printf "%d\n", max }'
}

# pack ROOT BEFORE trims ROOT and writes its tar to stdout.
pack() {
	local epoch
	epoch="$(epoch_of "$1" "$2")"
	trim "$1"
	# Only a build as root makes devices there.
	touch -d "@$epoch" "$1/dev"
	pack_tree "$1" "$epoch"
}

# build_layer STAGE writes STAGE/layer.tar.
build_layer() {
	local stage="$1" before
	# With slack, because what mmdebstrap writes may carry the time of its start.
	before="$(($(date +%s) - 60))"
	if command -v mmdebstrap >/dev/null 2>&1; then
		if [ "$(id -u)" = 0 ]; then
			say "building debian $suite for $image with mmdebstrap (about a minute)"
			bootstrap_mmdebstrap "$stage/root" root >&2
			pack "$stage/root" "$before" >"$stage/layer.tar"
		else
			say "building debian $suite for $image with mmdebstrap in a user namespace"
			bootstrap_mmdebstrap - unshare tar >"$stage/unshare.tar"
			mmdebstrap --unshare-helper "$0" --repack "$before" \
				<"$stage/unshare.tar" >"$stage/layer.tar"
			rm -f "$stage/unshare.tar"
		fi
	elif command -v debootstrap >/dev/null 2>&1; then
		[ "$(id -u)" = 0 ] || die "debootstrap needs root: install mmdebstrap to build without it"
		say "building debian $suite for $image with debootstrap (about two minutes)"
		bootstrap_debootstrap "$stage/root"
		pack "$stage/root" "$before" >"$stage/layer.tar"
	else
		die "neither mmdebstrap nor debootstrap is here: apt-get install mmdebstrap"
	fi
}

# repack BEFORE reads a root filesystem's tar on stdin and writes it trimmed; it
# runs as the root of a user namespace, which alone can own the files.
repack() {
	unpacked="$(mktemp -d)"
	trap 'rm -rf --one-file-system -- "$unpacked"' EXIT
	tar -C "$unpacked" --exclude='./dev/*' --xattrs --xattrs-include='security.capability' --numeric-owner -xpf -
	pack "$unpacked" "$1"
}

# clean_up STATUS removes what build made; it is build's exit trap.
clean_up() {
	rm -rf --one-file-system -- "$stage" "$unfinished"
	[ "$1" = 0 ] || say "the build failed"
}

# build ARCHIVE ARCH runs in a subshell of its own.
build() {
	local archive="$1" arch="$2" layer created
	unfinished="$(dirname -- "$archive")/.new.$$"
	stage="$(mktemp -d "$TMPDIR/sbench-image.XXXXXXXX")"
	trap 'clean_up $?' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	chmod 0755 "$stage"
	build_layer "$stage"
	created="$(tar --utc --full-time --no-recursion --occurrence=1 -tvf "$stage/layer.tar" ./ | awk '{ print $4 "T" $5 "Z" }')"
	say "wrapping the root filesystem ($(du -h "$stage/layer.tar" | cut -f1)) as an oci archive"
	layer="$(oci_add_layer "$stage/layout" "$stage/layer.tar")"
	oci_write_index "$stage/layout" "$image" "$(oci_arch "$arch")" "$created" / "$layer" >/dev/null
	oci_pack "$stage/layout" "$unfinished"
	mv -f -- "$unfinished" "$archive"
}

# debian_archive NAME [--force] prints the path of the archive, after building it if it is not
# there. It appears by a rename, so that a file of that name is complete; a lock lets two calls
# build it once.
debian_archive() {
	local force="${2:-}" arch archive images
	umask 022
	images="$(cache_dir)"
	arch="$(debian_arch)"
	archive="$images/$1-$suite-$arch-$(recipe_hash "$0" "$here/debian-root.sh" "$here/oci-archive.sh").oci.tar"
	if [ -n "$force" ] || [ ! -f "$archive" ]; then
		mkdir -p "$images"
		exec 9>"$images/.lock"
		flock -n 9 || {
			say "another build holds the lock: waiting for it"
			flock 9
		}
		if [ -n "$force" ] || [ ! -f "$archive" ]; then
			rm -f -- "$images"/.new.*
			(build "$archive" "$arch")
			say "built $image in ${SECONDS}s"
		fi
		exec 9>&-
	fi
	printf '%s\n' "$archive"
}
