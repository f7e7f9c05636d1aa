#!/usr/bin/env bash
# runtimes.sh [RUNTIME...]
#
# Runs the contract suite, the probe and the attack suites on each OCI runtime: runc-vX.Y.Z,
# which is compiled, or a program in PATH. Without arguments: an older and the newest runc,
# and crun. For root. Results are printed by go test; the last line says what passed.
set -euo pipefail

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
readonly default=(runc-v1.3.6 runc-v1.5.2 crun)

# suite PATTERN PACKAGE
suite() {
	"$here/without-hybrid.sh" "$here/go-test.sh" -timeout 20m -run "$1" "$2"
}

main() {
	local runtimes=("$@") runtime
	cd "$here/.."
	[ "${#runtimes[@]}" -gt 0 ] || runtimes=("${default[@]}")
	for runtime in "${runtimes[@]}"; do
		case "$runtime" in
		runc-v*) SBENCH_TEST_OCI_RUNTIME="$("$here/runc.sh" "${runtime#runc-}")/runc" ;;
		*) SBENCH_TEST_OCI_RUNTIME="$(command -v "$runtime")" ;;
		esac
		export SBENCH_TEST_OCI_RUNTIME
		echo "runtimes: $("$SBENCH_TEST_OCI_RUNTIME" --version | head -n 1)" >&2
		suite . ./runtime/containerd
		suite 'Attack|RepoPatch|Terminal' ./verifiers
		suite VerdictsRecordByRecord ./cmd/sbench
	done
	echo "runtimes: passed on ${runtimes[*]}" >&2
}

main "$@"
