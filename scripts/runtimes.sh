#!/usr/bin/env bash
# runtimes.sh [RUNTIME...]
#
# Runs the contract suite, the probe and the example packs on each OCI runtime: runc-vX.Y.Z,
# which is compiled and runs under the newest containerd, or a program in PATH, which runs
# under the installed one. runsc is the newest gVisor, which is compiled, and has a suite of its own.
# Without arguments: the newest runc, crun, and runsc. For root.
set -euo pipefail

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source-path=SCRIPTDIR source=events.sh
. "$here/events.sh"
export CGO_ENABLED=0
readonly default=(runc-v1.5.2 crun runsc)
readonly containerd=github.com/containerd/containerd/v2/cmd/containerd containerd_version=v2.4.2
readonly gvisor=gvisor.dev/gvisor/runsc@v0.0.0-20260905035102-160fafc42237

# compiled NAME PACKAGE@VERSION... builds programs from their Go modules, outside any module, because
# their dependencies are not ours, and prints the directory NAME of the cache that holds them. They are
# built once. GOFLAGS and CGO_ENABLED count.
compiled() {
	local cache="${SBENCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sbench}" name="$1" new
	shift
	if [ ! -d "$cache/$name" ]; then
		echo "runtimes: compiling $*" >&2
		mkdir -p "$cache"
		new="$(mktemp -d "$cache/new.XXXXXX")"
		(cd "$new" && GOBIN="$new" go install "$@" >&2) || { rm -r "$new"; return 1; }
		chmod 755 "$new"
		mv "$new" "$cache/$name"
	fi
	printf '%s\n' "$cache/$name"
}

# gvisor_suite runs what shows that a sandbox with a kernel of its own is one, and judges as others do.
gvisor_suite() {
	PATH="$(compiled "runsc-${gvisor#*@}" "$gvisor"):$PATH"
	export SBENCH_TEST_ISOLATION=gvisor PATH
	suite '(Contract|NotStarted|Probe|NothingIsLeftBehind|LimitReasons)$' ./runtime/sandbox
	suite VerdictsRecordByRecord ./cmd/sbench
	unset SBENCH_TEST_ISOLATION
}

# suite PATTERN PACKAGE...
suite() {
	"$here/without-hybrid.sh" "$here/go-test.sh" -vet=off -timeout 20m -skip "$(names 'target == "hosts" || same')" -run "$@"
}

main() {
	local runtimes=("$@") of runtime program path="$PATH"
	cd "$here/.."
	[ "${#runtimes[@]}" -gt 0 ] || runtimes=("${default[@]}")
	for runtime in "${runtimes[@]}"; do
		case "$runtime" in
		runsc)
			unset SBENCH_TEST_OCI_RUNTIME
			PATH="$path"
			gvisor_suite
			continue
			;;
		runc-v*)
			program="$(CGO_ENABLED=1 GOFLAGS='-mod=mod -tags=seccomp' compiled "$runtime" "github.com/opencontainers/runc@${runtime#runc-}")"
			PATH="$(GOFLAGS='-mod=mod -tags=no_btrfs,no_zfs,no_devmapper' compiled "containerd-$containerd_version" "$containerd@$containerd_version"):$program:$path"
			unset SBENCH_TEST_OCI_RUNTIME
			echo "runtimes: $(containerd --version), $(runc --version | head -n 1)" >&2
			;;
		*)
			PATH="$path"
			SBENCH_TEST_OCI_RUNTIME="$(command -v "$runtime")"
			export SBENCH_TEST_OCI_RUNTIME
			echo "runtimes: $("$SBENCH_TEST_OCI_RUNTIME" --version | head -n 1)" >&2
			;;
		esac
		of=(./runtime/sandbox)
		[ -n "${SBENCH_TEST_OCI_RUNTIME:-}" ] || of+=(./runtime/images ./runtime/daemon) # another OCI runtime changes nothing in these
		suite . "${of[@]}"
		suite VerdictsRecordByRecord ./cmd/sbench
	done
}

main "$@"
