#!/usr/bin/env bash
# Builds containerd 2.x and its runc shim from their Go module, for the tests
# that must hold on both lines of the daemon. Prints the directory that holds the
# two programs. Built once per version, under the cache directory.
set -euo pipefail

version=v2.4.2
cache="${SBENCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sbench}"
dir="$cache/containerd-$version"

if [ ! -x "$dir/containerd" ] || [ ! -x "$dir/containerd-shim-runc-v2" ]; then
	echo "containerd2: compiling containerd $version" >&2
	mkdir -p "$cache"
	new="$(mktemp -d "$cache/containerd-new.XXXXXX")"
	trap 'rm -rf "$new"' EXIT
	module=github.com/containerd/containerd/v2
	# Outside any module: the daemon's dependencies are not ours.
	(cd "$new" && GOBIN="$new" GOFLAGS=-mod=mod CGO_ENABLED=0 go install -tags no_btrfs,no_zfs,no_devmapper \
		"$module/cmd/containerd@$version" "$module/cmd/containerd-shim-runc-v2@$version" >&2)
	chmod 755 "$new"
	rm -rf "$dir"
	mv "$new" "$dir"
fi
echo "$dir"
