#!/usr/bin/env bash
# runtimes.sh [RUNTIME...]
#
# Runs the contract suite, the probe and the example packs on each OCI runtime: runc-vX.Y.Z,
# which is compiled and runs under the newest containerd, or a program in PATH, which runs
# under the installed one. Without arguments: the newest runc, and crun. For root.
set -euo pipefail

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source-path=SCRIPTDIR source=events.sh
. "$here/events.sh"
readonly default=(runc-v1.5.2 crun)

# suite PATTERN PACKAGE...
suite() {
	"$here/without-hybrid.sh" "$here/go-test.sh" -vet=off -timeout 20m -skip "$(names 'target == "hosts"')" -run "$@"
}

main() {
	local runtimes=("$@") runtime program path="$PATH"
	cd "$here/.."
	[ "${#runtimes[@]}" -gt 0 ] || runtimes=("${default[@]}")
	for runtime in "${runtimes[@]}"; do
		case "$runtime" in
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
		suite . ./runtime/sandbox ./runtime/images ./runtime/daemon
		suite VerdictsRecordByRecord ./cmd/sbench
	done
}

main "$@"
