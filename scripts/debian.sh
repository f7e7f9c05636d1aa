# shellcheck shell=bash
# debian.sh: functions that make minimal Debian systems and images of them, sourced by the scripts
# that do. They need mmdebstrap, tar, zstd, sha256sum and coreutils: no jq, no python.
#
# Packages come from SBENCH_DEBIAN_MIRROR (a complete URI), or from where mmdebstrap takes a
# suite from by itself: the apt sources of this machine if they have it, else deb.debian.org.

export LC_ALL=C # the same bytes wherever it runs
# On disk, not in memory, and not in a home, which apt's own user cannot enter.
export TMPDIR="${TMPDIR:-/var/tmp}"

say() { printf '%s: %s\n' "${SAY_PREFIX:-image}" "$*" >&2; }

die() {
	say "$*"
	exit 1
}

# cache_dir prints the directory that what is built once is kept in.
cache_dir() { printf '%s\n' "${SBENCH_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set; set SBENCH_CACHE}/.cache}/sbench}"; }

sha256() { sha256sum "$@" | cut -c 1-64; }

# debian_arch prints the machine's architecture as Debian and OCI name it.
debian_arch() {
	case "$(uname -m)" in
	x86_64) echo amd64 ;;
	aarch64) echo arm64 ;;
	*) die "unsupported architecture $(uname -m): sbench runs on amd64 and arm64" ;;
	esac
}

# debian RELEASE TARGET OPTION... makes the system with mmdebstrap's OPTIONs, without manuals. As an
# ordinary user it works in a user namespace.
debian() {
	local release="$1" target="$2" line args=()
	shift 2
	command -v mmdebstrap >/dev/null 2>&1 || die "mmdebstrap is missing: apt-get install mmdebstrap zstd"
	command -v zstd >/dev/null 2>&1 || die "zstd is missing: apt-get install zstd"
	if command -v apt-config >/dev/null 2>&1; then # this machine's way to its mirror
		while IFS= read -r line; do args+=("--aptopt=$line"); done < <(
			apt-config dump | grep -E '^Acquire::(https?::Proxy|Check-Valid-Until|Check-Date|Retries|ForceIPv[46]) '
		)
	fi
	for line in man locale info doc; do args+=("--dpkgopt=path-exclude=/usr/share/$line/*"); done
	# SOURCE_DATE_EPOCH would change python's compiled files.
	env -u SOURCE_DATE_EPOCH mmdebstrap --quiet --variant=minbase --dpkgopt=force-unsafe-io "${args[@]}" \
		--dpkgopt='path-include=/usr/share/doc/*/copyright' "$@" "$release" "$target" \
		${SBENCH_DEBIAN_MIRROR:+"$SBENCH_DEBIAN_MIRROR"} >&2
}

# trim ROOT BEFORE RELEASE removes from a system what a task never needs, what differs from build to
# build and what tells of the machine that built it. What the build has written (after BEFORE, in seconds)
# gets the time of the newest file that a package brought, and everything else keeps its time, because
# python's compiled files name the time of their source.
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

# pack ROOT prints the system as a tar, without the host's file systems that are mounted there. mmdebstrap's
# own tar would have the time of the build in its extended headers.
pack() { tar -C "$1" --format=gnu --sort=name --numeric-owner --exclude=./dev --exclude=./proc --exclude=./sys -cf - .; }

# blob LAYOUT stores standard input, and prints its digest and size as members of a JSON object.
blob() {
	local digest
	cat >"$1/new"
	digest="$(sha256 "$1/new")"
	printf '"digest":"sha256:%s","size":%s' "$digest" "$(stat -c %s "$1/new")"
	mv "$1/new" "$1/blobs/sha256/$digest"
}

# archive TAR NAME FILE makes of the tar of a root file system an OCI image layout archive, FILE, of an
# image with one layer. Equal tars make equal archives.
archive() {
	local layout="$1.layout" arch layer type=application/vnd.oci.image
	arch="$(debian_arch)"
	mkdir -p "$layout/blobs/sha256"
	layer="$(zstd -1 -q -c <"$1" | blob "$layout")" # read once or twice, and on this machine
	printf '{"created":"1970-01-01T00:00:00Z","architecture":"%s","os":"linux","config":{"Env":["PATH=%s","LANG=C.UTF-8"],"Cmd":["bash"],"WorkingDir":"/"},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
		"$arch" /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$(sha256 "$1")" | blob "$layout" >"$layout/config"
	printf '{"schemaVersion":2,"mediaType":"%s.manifest.v1+json","config":{"mediaType":"%s.config.v1+json",%s},"layers":[{"mediaType":"%s.layer.v1.tar+zstd",%s}]}' \
		"$type" "$type" "$(cat "$layout/config")" "$type" "$layer" | blob "$layout" >"$layout/manifest"
	printf '{"schemaVersion":2,"mediaType":"%s.index.v1+json","manifests":[{"mediaType":"%s.manifest.v1+json",%s,"platform":{"architecture":"%s","os":"linux"},"annotations":{"io.containerd.image.name":"%s","org.opencontainers.image.ref.name":"%s"}}]}' \
		"$type" "$type" "$(cat "$layout/manifest")" "$arch" "$2" "${2##*:}" >"$layout/index.json"
	printf '{"imageLayoutVersion":"1.0.0"}' >"$layout/oci-layout"
	tar -C "$layout" --format=gnu --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --mode=u=rwX,go=rX \
		-cf "$3" oci-layout index.json blobs
}

# debian_image SUITE NAME PACKAGES FILE [HOOK] makes the system, changed by the shell command HOOK, in
# which $1 is its root, and of it the image NAME in the archive FILE. FILE appears by a rename, so that
# it is complete. It runs in a subshell of its own.
debian_image() (
	stage="$(mktemp -d "$TMPDIR/sbench-image.XXXXXXXX")"
	unfinished="$(dirname -- "$4")/.new.$$"
	trap 'rm -rf --one-file-system -- "$stage" "$unfinished"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	chmod 0755 "$stage"
	say "building debian $1 for $2 (about a minute)"
	before="$(($(date +%s) - 60))" # with slack: what mmdebstrap writes may carry the time of its start
	# The hook may run as another user, so it gets the open file.
	debian "$1" - --format=null --include="${3// /,}" --skip=cleanup ${5:+--customize-hook="$5"} \
		--customize-hook="bash -euo pipefail -c '. \"${BASH_SOURCE[0]}\"; trim \"\$1\" $before $1; pack \"\$1\" >&3' pack \"\$1\"" \
		3>"$stage/layer.tar"
	mkdir "$stage/dev" "$stage/proc" "$stage/sys"
	tar -rf "$stage/layer.tar" -C "$stage" --owner=0 --group=0 --numeric-owner --mode=755 --mtime=@0 ./dev ./proc ./sys
	archive "$stage/layer.tar" "$2" "$unfinished"
	mv -f -- "$unfinished" "$4"
)
