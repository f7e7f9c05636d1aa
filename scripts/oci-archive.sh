# shellcheck shell=bash
# oci-archive.sh: functions that wrap root filesystem tars as an OCI image
# layout archive. Sourced by the scripts that make images; does nothing by
# itself. It needs tar, gzip, sha256sum and coreutils: no jq, no python.
#
# A layout under construction is a directory with blobs/sha256/. Every function
# prints its result on stdout and nothing else; say() writes to stderr.

say() { printf '%s: %s\n' "${SAY_PREFIX:-image}" "$*" >&2; }

die() {
	say "$*"
	exit 1
}

# cache_dir prints the directory that archives are kept in.
cache_dir() {
	local base="${XDG_CACHE_HOME:-}"
	if [ -n "${SBENCH_CACHE:-}" ]; then
		printf '%s/images\n' "$SBENCH_CACHE"
		return
	fi
	[ -n "$base" ] || base="${HOME:?HOME is not set; set SBENCH_CACHE}/.cache"
	printf '%s/sbench/images\n' "$base"
}

# recipe_hash FILE... prints 16 hex digits that change when any FILE does.
recipe_hash() { cat -- "$@" | sha256sum | cut -c1-16; }

# debian_arch prints the machine's architecture as Debian names it.
debian_arch() {
	if command -v dpkg >/dev/null 2>&1; then
		dpkg --print-architecture
		return
	fi
	case "$(uname -m)" in
	x86_64) echo amd64 ;;
	aarch64) echo arm64 ;;
	*) die "unsupported architecture $(uname -m)" ;;
	esac
}

# oci_arch ARCH prints the OCI (Go) name of a Debian architecture.
oci_arch() {
	case "$1" in
	amd64 | arm64) echo "$1" ;;
	*) die "unsupported architecture $1: sbench runs on amd64 and arm64" ;;
	esac
}

# digest_of FILE prints its sha256 in hex.
digest_of() { sha256sum -- "$1" | cut -d' ' -f1; }

# oci_add_blob LAYOUT FILE moves FILE into the layout and prints
# "<sha256 hex> <size in bytes>".
oci_add_blob() {
	local layout="$1" file="$2" hex size
	hex="$(digest_of "$file")"
	size="$(stat -c %s -- "$file")"
	mkdir -p "$layout/blobs/sha256"
	mv -f -- "$file" "$layout/blobs/sha256/$hex"
	chmod 0644 "$layout/blobs/sha256/$hex"
	printf '%s %s\n' "$hex" "$size"
}

# oci_add_layer LAYOUT TAR compresses TAR, which it consumes, and prints
# "<blob sha256> <blob size> <sha256 of the tar: the diff id>".
oci_add_layer() {
	local layout="$1" tarfile="$2" diff_id blob
	diff_id="$(digest_of "$tarfile")"
	# -1: the archive is read once or twice and stays on this machine.
	# -n: no name and no time stamp, so equal tars make equal blobs.
	gzip -1 -n -c -- "$tarfile" >"$tarfile.gz"
	rm -f -- "$tarfile"
	blob="$(oci_add_blob "$layout" "$tarfile.gz")"
	printf '%s %s\n' "$blob" "$diff_id"
}

# oci_write_index LAYOUT NAME ARCH CREATED WORKDIR LAYER... writes the config,
# the manifest, index.json and oci-layout. A LAYER is the line that
# oci_add_layer printed, lowest first. Prints the manifest's digest.
oci_write_index() {
	local layout="$1" name="$2" arch="$3" created="$4" workdir="$5"
	shift 5
	local hex size diff_id diff_ids="" layers="" history="" sep="" tmp config manifest
	local path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	local layer
	for layer in "$@"; do
		read -r hex size diff_id <<<"$layer"
		layers+="$sep{\"mediaType\":\"application/vnd.oci.image.layer.v1.tar+gzip\",\"digest\":\"sha256:$hex\",\"size\":$size}"
		diff_ids+="$sep\"sha256:$diff_id\""
		history+="$sep{\"created\":\"$created\",\"created_by\":\"sbench make image\"}"
		sep=","
	done
	tmp="$layout/.json"
	printf '{"created":"%s","architecture":"%s","os":"linux","config":{"Env":["PATH=%s","LANG=C.UTF-8"],"Cmd":["bash"],"WorkingDir":"%s"},"rootfs":{"type":"layers","diff_ids":[%s]},"history":[%s]}' \
		"$created" "$arch" "$path" "$workdir" "$diff_ids" "$history" >"$tmp"
	config="$(oci_add_blob "$layout" "$tmp")"
	printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:%s","size":%s},"layers":[%s]}' \
		"${config% *}" "${config#* }" "$layers" >"$tmp"
	manifest="$(oci_add_blob "$layout" "$tmp")"
	printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:%s","size":%s,"platform":{"architecture":"%s","os":"linux"},"annotations":{"io.containerd.image.name":"%s","org.opencontainers.image.ref.name":"%s"}}]}' \
		"${manifest% *}" "${manifest#* }" "$arch" "$name" "${name##*:}" >"$layout/index.json"
	printf '{"imageLayoutVersion":"1.0.0"}' >"$layout/oci-layout"
	printf 'sha256:%s\n' "${manifest% *}"
}

# oci_pack LAYOUT FILE writes the layout as one tar file.
oci_pack() {
	tar -C "$1" --format=gnu --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 \
		-cf "$2" oci-layout index.json blobs
}
