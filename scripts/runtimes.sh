#!/usr/bin/env bash
# runtimes.sh
#
# Runs the contract suite, the probe and whole runs under the newest containerd and runc and on the newest
# gVisor, with which only what can differ is tested, and the suite on the installed crun. containerd, runc
# and gVisor are compiled. For root. With the argument compile it does only that.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# shellcheck source-path=SCRIPTDIR source=events.sh
. scripts/events.sh
# shellcheck source-path=SCRIPTDIR source=debian.sh
. scripts/debian.sh
export SAY_PREFIX=runtimes
readonly containerd=v2.4.2 runc=v1.5.2 gvisor=v0.0.0-20260905035102-160fafc42237

# compiled NAME VERSION PACKAGE builds a program from its Go module, outside any module, because its
# dependencies are not ours, and prints the directory NAME-VERSION of the cache that holds it. It is
# built once. GOFLAGS and CGO_ENABLED count.
compiled() {
	local new directory
	directory="$(cache_dir)/$1-$2"
	if [ ! -d "$directory" ]; then
		say "compiling $1 $2"
		mkdir -p "$(cache_dir)"
		new="$(mktemp -d "$(cache_dir)/new.XXXXXX")"
		(cd "$new" && GOBIN="$new" go install "$3@$2" >&2) || { rm -r "$new"; return 1; }
		chmod 755 "$new"
		mv "$new" "$directory"
	fi
	printf '%s\n' "$directory"
}

newest_runc() { CGO_ENABLED=1 GOFLAGS='-mod=mod -tags=seccomp' compiled runc "$runc" github.com/opencontainers/runc; }
newest_containerd() { GOFLAGS='-mod=mod -tags=no_btrfs,no_zfs,no_devmapper' compiled containerd "$containerd" github.com/containerd/containerd/v2/cmd/containerd; }
newest_runsc() { compiled runsc "$gvisor" gvisor.dev/gvisor/runsc; }

# suite PATTERN PACKAGE... leaves out TestHogs, in which the kernel alone acts, and the tests that the regular expression
# same names.
suite() { scripts/without-hybrid.sh scripts/go-test.sh -vet=off -timeout 20m -skip "$(names 'target == "hosts" || same')|^TestHogs\$${same:+|$same}" -run "$@"; }

# suites PATTERN PACKAGE... is suite, and whole runs beside it.
suites() {
	local runs failed=0
	suite VerdictsRecordByRecord ./cmd/sbench &
	runs=$!
	suite "$@" || failed=1
	wait "$runs" && [ "$failed" = 0 ]
}

newest() {
	PATH="$(newest_runc):$PATH"
	PATH="$(newest_containerd):$PATH"
	say "$(containerd --version), $(runc --version | head -n 1)"
	suites . ./runtime/sandbox ./runtime/images ./runtime/daemon
}

crun() {
	# In these the daemon, the shim or sbench itself acts, and the OCI runtime does not. So it does in whole runs, which
	# use of it what the contract suite tests.
	local same='^Test(AnchorKilled|NetworkRefused|OneServerForARun|ServerGivenUp|ShimThatDoesNotWork|SymlinkedSocket|VolumeAgain)$'
	SBENCH_TEST_OCI_RUNTIME="$(type -P crun)"
	export SBENCH_TEST_OCI_RUNTIME
	say "$("$SBENCH_TEST_OCI_RUNTIME" --version | head -n 1)"
	suite . ./runtime/sandbox
}

runsc() {
	PATH="$(newest_runsc):$PATH"
	export SBENCH_TEST_ISOLATION=gvisor
	suites '(Contract|NotStarted|Probe|NothingIsLeftBehind|LimitReasons)$' ./runtime/sandbox
}

# Each in a process of its own, where set -e holds.
case "${1:-}" in
newest | crun | runsc) "$1" ;;
compile) for name in runc containerd runsc; do "newest_$name"; done ;;
*) for name in newest crun runsc; do scripts/runtimes.sh "$name"; done ;;
esac
