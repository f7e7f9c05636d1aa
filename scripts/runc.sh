#!/usr/bin/env bash
# runc.sh VERSION
#
# Builds that runc from its Go module, for the tests that must hold on others than the
# distribution's, and prints the directory that holds it. Built once per version, under the
# cache directory. Needs a C compiler, pkg-config and libseccomp's headers.
set -euo pipefail

version="${1:?usage: runc.sh VERSION, such as v1.5.2}"
cache="${SBENCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sbench}"
dir="$cache/runc-$version"

if [ ! -x "$dir/runc" ]; then
	echo "runc: compiling runc $version" >&2
	mkdir -p "$cache"
	new="$(mktemp -d "$cache/runc-new.XXXXXX")"
	trap 'rm -rf "$new"' EXIT
	# Outside any module: its dependencies are not ours.
	(cd "$new" && GOBIN="$new" GOFLAGS=-mod=mod CGO_ENABLED=1 go install -tags seccomp "github.com/opencontainers/runc@$version" >&2)
	chmod 755 "$new"
	rm -rf "$dir"
	mv "$new" "$dir"
fi
echo "$dir"
