#!/bin/bash
# dist.sh [--arch amd64|arm64]... [--out DIRECTORY] [--container no]
#
# Makes what a release consists of in DIRECTORY (dist/ of the repository unless it is given):
# for each architecture a tarball, a deb, an rpm and a CycloneDX list of the modules in the
# program, for this machine's architecture the container image too, and SHA256SUMS of them
# all, with SHA256SUMS.sig if SIGN_KEY names an SSH key. What an earlier call left there is removed.
#
# The same commit and the same Go make the same bytes, wherever and by whom they are made:
# times are SOURCE_DATE_EPOCH, which is the commit's unless it is set. The version is
# VERSION, else what version.sh says. The container image is the same only with the same
# packages of Debian.
#
# Needs Go, git (unless VERSION and SOURCE_DATE_EPOCH are set), tar, gzip, and for the container
# image mmdebstrap; progress goes to stderr.
set -euo pipefail

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
export SAY_PREFIX=dist
# shellcheck source-path=SCRIPTDIR source=debian.sh
. "$here/debian.sh"
PATH="$PATH:/usr/local/go/bin"
readonly module=github.com/securebench/sbench

export LC_ALL=C TZ=UTC CGO_ENABLED=0
# What a user may have set, and the program would differ by.
export GOFLAGS=-mod=readonly GOWORK=off GOOS=linux GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT='' GOFIPS140=off

arches=()
out=""
container=yes
stage=""

arguments() {
	while [ $# -gt 0 ]; do
		case "$1 ${2:-}" in
		"--arch amd64" | "--arch arm64") arches+=("$2") ;;
		"--out "?*) out="$2" ;;
		"--container no") container=no ;;
		*) die "usage: dist.sh [--arch amd64|arm64]... [--out DIRECTORY] [--container no]" ;;
		esac
		shift 2
	done
	[ "${#arches[@]}" -gt 0 ] || arches=(amd64 arm64)
	mkdir -p -- "${out:=$here/../dist}"
	out="$(cd -- "$out" && pwd)"
}

# package_version prints VERSION as semantic versioning, of which nfpm makes versions that
# dpkg and rpm compare rightly: v1.2.3, v1.2.3-rc.1; v1.2.3-4-gabcdef0, four commits after
# v1.2.3, is 1.2.3+4.gabcdef0; without a tag 0.0.0-TIME+gabcdef0.
package_version() {
	local hash='([0-9a-f]{4,})(-dirty)?$'
	if [[ "$VERSION" =~ ^v?([0-9]+\.[0-9]+\.[0-9]+.*)-([0-9]+)-g$hash ]]; then
		printf '%s+%s.g%s%s\n' "${BASH_REMATCH[@]:1:3}" "${BASH_REMATCH[4]/-/.}"
	elif [[ "$VERSION" =~ ^$hash ]]; then
		printf '0.0.0-%s+g%s%s\n' "$(date -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S)" "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]/-/.}"
	elif [[ "$VERSION" =~ ^v?([0-9]+\.[0-9]+\.[0-9]+.*)$ ]]; then
		printf '%s\n' "${BASH_REMATCH[1]/-dirty/+dirty}"
	else
		die "VERSION $VERSION is neither v1.2.3 nor what git describe prints"
	fi
}

# compile ARCH DIRECTORY makes the programs.
compile() {
	(cd "$here/.." && GOARCH="$1" go build -trimpath -buildvcs=false \
		-ldflags "-s -w -X main.version=$VERSION" -o "$2/" ./cmd/...)
}

# modules FILE prints path, version and checksum of each module that a program was made from.
modules() { go version -m "$1" | awk -F '\t' '$2 == "dep" { print $3, $4, $5 }'; }

# licenses FILE prints the licenses of these modules and of Go, as most of them require of
# whoever passes a program on.
licenses() {
	local name directory file paths
	mapfile -t paths < <(modules "$1" | cut -d ' ' -f 1)
	while IFS=$'\t' read -r name directory; do
		[ -d "$directory" ] || die "the sources of $name are missing: go mod download"
		for file in "$directory"/{LICEN[CS]E,NOTICE,COPYING,PATENTS}*; do license "$name" "$file"; done
	done < <(cd "$here/.." && go list -m -f '{{.Path}} {{.Version}}{{"\t"}}{{.Dir}}' "${paths[@]}")
	license "Go $(go env GOVERSION)" "$(go env GOROOT)/LICENSE"
}

# license NAME FILE prints FILE under a heading, if it exists.
license() {
	[ -f "$2" ] || return 0
	printf '==== %s: %s\n\n' "$1" "$(basename -- "$2")"
	tr -d '\r' <"$2"
	printf '\n'
}

# bill FILE prints the modules of a program as CycloneDX JSON. No name or version has a
# character that JSON or a purl would escape, except the plus sign.
bill() {
	printf '{"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": {"timestamp": "%s",\n' \
		"$(date -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)"
	printf '"component": {"type": "application", "bom-ref": "sbench", "name": "sbench", "version": "%s",' "$VERSION"
	printf ' "purl": "pkg:golang/%s@%s", "licenses": [{"license": {"id": "Apache-2.0"}}],' "$module" "$VERSION"
	printf ' "hashes": [{"alg": "SHA-256", "content": "%s"}]}},\n"components": [\n' "$(sha256 "$1")"
	{
		modules "$1"
		echo "std $(go version "$1" | awk '{ print $NF }' | sed 's/^go/v/') -"
	} | awk '{
		plus = $2
		gsub(/\+/, "%2B", plus)
		purl = "pkg:golang/" tolower($1) "@" plus
		printf "%s{\"type\": \"library\", \"bom-ref\": \"%s\", \"name\": \"%s\", \"version\": \"%s\", \"purl\": \"%s\"", (NR > 1 ? ",\n" : ""), purl, $1, $2, purl
		if ($3 ~ /^h1:/) printf ", \"properties\": [{\"name\": \"go:sum\", \"value\": \"%s\"}]", $3
		printf "}"
	}'
	printf '\n]}\n'
}

# release ARCH HERE makes the files for one architecture; HERE is the program for this machine.
release() {
	local arch="$1" name="sbench-$PACKAGE_VERSION-linux-$1" tree file binary
	tree="$stage/$name"
	say "$arch"
	binary="$stage/$arch/sbench"
	compile "$arch" "$stage/$arch"
	"$here/install.sh" "$tree" "$binary" "$2"
	licenses "$binary" >"$tree/share/doc/sbench/LICENSES"
	find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	tar --create --format=ustar --sort=name --owner=0 --group=0 --numeric-owner --mode=go-w \
		-C "$stage" "$name" | gzip -9n >"$out/$name.tar.gz"
	bill "$binary" >"$out/$name.cdx.json"
	if [ "$container" = yes ] && [ "$arch" = "$(debian_arch)" ]; then
		"$here/container-image.sh" "$binary" "$PACKAGE_VERSION" "$out/$name.oci.tar"
	fi
	for file in deb rpm; do
		(cd "$here/.." && STAGE="$tree" ARCH="$arch" "$stage/nfpm" package --config scripts/nfpm.yaml --packager "$file" --target "$out/" >&2)
	done
}

main() {
	local arch host
	umask 022
	arguments "$@"
	command -v go >/dev/null 2>&1 || die "go is missing: see make setup"
	cd "$here/.."
	: "${VERSION:=$("$here/version.sh")}" "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
	PACKAGE_VERSION="$(package_version)"
	export VERSION SOURCE_DATE_EPOCH PACKAGE_VERSION
	stage="$(mktemp -d "${TMPDIR:-/var/tmp}/sbench-dist.XXXXXX")"
	trap 'rm -rf -- "$stage"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	rm -f -- "$out"/sbench[-_]* "$out"/SHA256SUMS*
	say "version $PACKAGE_VERSION"
	host="$(go env GOHOSTARCH)"
	compile "$host" "$stage/here"
	GOARCH="$host" go build -modfile=scripts/tools/go.mod -o "$stage/nfpm" github.com/goreleaser/nfpm/v2/cmd/nfpm
	for arch in "${arches[@]}"; do release "$arch" "$stage/here/sbench"; done
	(cd "$out" && sha256sum -- sbench[-_]* >SHA256SUMS)
	[ -z "${SIGN_KEY:-}" ] || ssh-keygen -q -Y sign -f "$SIGN_KEY" -n sbench "$out/SHA256SUMS"
	say "made $out"
}

main "$@"
