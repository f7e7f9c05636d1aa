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
readonly default=(runc-v1.5.2 crun runsc)
readonly gvisor=v0.0.0-20260905035102-160fafc42237

# gvisor_suite runs what shows that a sandbox with a kernel of its own is one, and judges as others do.
gvisor_suite() {
	local bin="${SBENCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sbench}/runsc-$gvisor"
	[ -x "$bin/runsc" ] || CGO_ENABLED=0 GOBIN="$bin" go install "gvisor.dev/gvisor/runsc@$gvisor"
	export SBENCH_TEST_ISOLATION=gvisor PATH="$bin:$PATH"
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
			program="$("$here/runc.sh" "${runtime#runc-}")"
			PATH="$("$here/containerd2.sh"):$program:$path"
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
