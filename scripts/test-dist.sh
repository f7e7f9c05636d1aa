#!/bin/bash
# test-dist.sh [--short]
#
# Tests what dist.sh makes: the same bytes a second time, from another directory, umask, time
# zone and an empty build cache; the checksums and their signature; the list of modules; what is in the tarball
# and in the packages. The container image must be there; `make kubernetes` runs it, and `make hosts` installs the deb.
# With --short only this machine's architecture, the same build cache, and no container image.
#
# Needs Go, dpkg-deb, ssh-keygen; without --short what dist.sh needs for a container image. Everything is printed on stderr.
set -euo pipefail

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
export SAY_PREFIX=test-dist
# shellcheck source-path=SCRIPTDIR source=debian.sh
. "$here/debian.sh"
PATH="$PATH:/usr/local/go/bin:/usr/local/sbin:/usr/sbin:/sbin"
export LC_ALL=C

stage=""

# has FILE LINE... fails unless each LINE is a whole line of FILE.
has() {
	local file="$1" line
	shift
	for line in "$@"; do
		grep -qxF -- "$line" "$file" || die "$(basename -- "$file") has no line: $line"
	done
}

# reproduce ARGUMENT... makes the release in stage/one and, under other circumstances,
# in stage/two.
reproduce() {
	ssh-keygen -q -t ed25519 -N "" -C "" -f "$stage/key"
	export SIGN_KEY="$stage/key"
	say "the first time"
	"$here/dist.sh" "$@" --out "$stage/one"
	say "the second time"
	mkdir "$stage/elsewhere"
	tar -C "$here/.." --exclude=./bin --exclude=./dist --exclude=./runs -cf - . | tar -C "$stage/elsewhere" --no-same-owner -xf -
	(
		umask 077
		export TZ=Asia/Tokyo LANG=C.UTF-8 USER=another HOME="${HOME:-/root}"
		[ -n "$short" ] || export GOCACHE="$stage/cache"
		"$stage/elsewhere/scripts/dist.sh" "$@" --out "$stage/two"
	)
	diff -r "$stage/one" "$stage/two" >&2 || die "the second time made other files"
}

# check_files looks at the files for this machine's architecture.
check_files() {
	local arch name deb root="$stage/root" file containers
	arch="$(debian_arch)"
	name="$(basename -- "$stage"/one/*-linux-"$arch".tar.gz .tar.gz)"
	deb="$(echo "$stage"/one/*_"$arch".deb)"
	(cd "$stage/one" && sha256sum --quiet -c SHA256SUMS)
	echo "signer $(cat "$stage/key.pub")" >"$stage/allowed"
	ssh-keygen -Y verify -f "$stage/allowed" -I signer -n sbench -s "$stage/one/SHA256SUMS.sig" <"$stage/one/SHA256SUMS" >&2
	ls "$stage/one" >"$stage/listing"
	has "$stage/listing" "$name.cdx.json" SHA256SUMS SHA256SUMS.sig
	containers=1
	[ -z "$short" ] || containers=0
	[ "$(wc -l <"$stage/listing")" = "$((4 * $(grep -c '\.deb$' "$stage/listing") + 2 + containers))" ]

	say "the changelog"
	grep -qE "^## \[$("$here/version.sh" | sed -E 's/^v([0-9.]+).*/\1/; s/\./\\./g')\] - 20[0-9]{2}-[01][0-9]-[0-3][0-9]$" "$here/../CHANGELOG.md" || die "CHANGELOG.md has no dated section of this version"

	say "the list of modules"
	tr -d '\n' <"$stage/one/$name.cdx.json" >"$stage/bill"
	grep -q '^{"bomFormat": "CycloneDX".*"name": "github.com/alecthomas/kong", "version": "v[0-9.]*".*\]}$' "$stage/bill"
	grep -q '"name": "std", "version": "v1\.' "$stage/bill"

	say "the tarball"
	mkdir "$stage/unpacked" "$root"
	tar -tvzf "$stage/one/$name.tar.gz" >"$stage/listing"
	if grep -v ' 0/0 ' "$stage/listing"; then die "not everything belongs to root"; fi
	tar -C "$stage/unpacked" --strip-components=1 -xzf "$stage/one/$name.tar.gz"

	say "the deb"
	dpkg-deb --info "$deb" | sed 's/^ //' >"$stage/listing"
	has "$stage/listing" "Package: sbench" "Architecture: $arch" "Depends: containerd, runc | crun" \
		"Recommends: uidmap, e2fsprogs" "Suggests: mmdebstrap, zstd"
	dpkg-deb --contents "$deb" >"$stage/listing"
	if awk '$2 != "root/root" && $2 != "0/0" || substr($1, 6, 1) == "w" || substr($1, 9, 1) == "w" || $1 ~ /[st]/' "$stage/listing" | grep .; then
		die "owners or modes of these are wrong"
	fi
	dpkg-deb --extract "$deb" "$root"
	for file in bin/sbench bin/containerd-shim-sbench-v1 share/man/man1/sbench.1.gz share/bash-completion/completions/sbench share/zsh/vendor-completions/_sbench \
		share/fish/vendor_completions.d/sbench.fish share/doc/sbench/copyright share/sbench/apparmor; do
		[ -s "$root/usr/$file" ] || die "the deb has no $file"
	done
	for file in README.md CHANGELOG.md LICENSE LICENSES docs/install.md docs/images/report-overview.png \
		benchmarks/terminal-task-smoke/tasks.jsonl scripts/base-image.sh; do
		cmp "$root/usr/share/doc/sbench/$file" "$stage/unpacked/share/doc/sbench/$file"
	done
	cmp "$root/usr/bin/sbench" "$stage/unpacked/bin/sbench"
	grep -q '^==== github.com/alecthomas/kong v' "$root/usr/share/doc/sbench/LICENSES"
	grep -q '^==== Go go1\.' "$root/usr/share/doc/sbench/LICENSES"

	say "the program"
	"$root/usr/bin/sbench" version >"$stage/listing"
	grep -q "^sbench $("$here/version.sh") go" "$stage/listing" || die "another version: $(cat "$stage/listing")"
	gzip -dc "$root/usr/share/man/man1/sbench.1.gz" >"$stage/listing"
	has "$stage/listing" ".SH NAME" ".SH EXIT STATUS"
	bash -n "$root/usr/share/bash-completion/completions/sbench"

	say "the rpm"
	file="$(echo "$stage"/one/*."$(uname -m)".rpm)"
	rpm -K --nosignature "$file" >&2
	rpm -qp --requires --recommends --suggests "$file" >"$stage/listing"
	has "$stage/listing" containerd "(runc or crun)" shadow-utils-subid e2fsprogs mmdebstrap zstd
	rpm -qp --queryformat '[%{FILEMODES:perms} %{FILEUSERNAME}:%{FILEGROUPNAME} %{FILENAMES}\n]' "$file" >"$stage/listing"
	if grep -vE '^[-d]rw.r-.r-. root:root /usr/(bin|share)/' "$stage/listing"; then die "owners or modes of these are wrong"; fi
	has "$stage/listing" "-rwxr-xr-x root:root /usr/bin/sbench" "-rwxr-xr-x root:root /usr/bin/containerd-shim-sbench-v1"
}

main() {
	local arch=()
	short=""
	case "${1:-}" in
	"") ;;
	--short)
		short=1
		arch=(--arch "$(debian_arch)" --container no)
		;;
	*) die "usage: test-dist.sh [--short]" ;;
	esac
	stage="$(mktemp -d "${TMPDIR:-/var/tmp}/sbench-test-dist.XXXXXX")"
	trap 'chmod -R u+w -- "$stage"; rm -rf -- "$stage"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	reproduce ${arch[@]+"${arch[@]}"}
	check_files
	say "everything is right"
}

main "$@"
