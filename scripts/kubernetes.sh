#!/usr/bin/env bash
# Builds an API server of Kubernetes, its controllers and etcd from their Go modules, for
# the tests of `sbench job kubernetes`, and prints the directory that holds them. Built
# once per version, under the cache directory; that takes many minutes.
set -euo pipefail

version=v1.37.2
cache="${SBENCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sbench}"
dir="$cache/kubernetes-$version"

# replaced FILE prints the modules that a go.mod of Kubernetes takes from its own tree, which
# are published as v0.MINOR.PATCH.
replaced() { sed -n -E "s#^\t(k8s.io/[a-z-]+) => ./staging/.*#-replace=\1=\1@v0.${version#v1.}#p" "$1"; }

if [ ! -x "$dir/kube-apiserver" ]; then
	echo "kubernetes: compiling Kubernetes $version and etcd" >&2
	mkdir -p "$cache"
	new="$(mktemp -d "$cache/kubernetes-new.XXXXXX")"
	trap 'rm -rf "$new"' EXIT
	export CGO_ENABLED=0 GOFLAGS=-mod=mod GOWORK=off
	(
		mkdir "$new/module"
		cd "$new/module"
		go mod init build
		mapfile -t replaces < <(replaced "$(go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/.*"GoMod": "\(.*\)",/\1/p')")
		go mod edit "${replaces[@]}" "-require=k8s.io/kubernetes@$version"
		go build -trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" -o "$new/" \
			k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kube-controller-manager go.etcd.io/etcd/server/v3
		mv "$new/server" "$new/etcd"
	) >&2
	rm -r "$new/module"
	chmod 755 "$new"
	rm -rf "$dir"
	mv "$new" "$dir"
fi
echo "$dir"
