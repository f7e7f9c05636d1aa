#!/bin/bash
# test.sh TARGET...
#
# Runs the TARGETs one after the other: test, which is `make test`, and what `make` calls
# test-TARGET. "all" is all of them but test. For each it first installs what only that target needs.
# With LESS=rootless in the environment, test leaves out what it runs as an ordinary user.
#
# A target that fails does not keep the next ones from running. The last lines say which to run
# again, and count the tests, subtests included: "N passed, N failed, N skipped". The
# exit status is 1 if a target failed, or under CI=true if a test was skipped.
set -euo pipefail

cd -- "$(dirname -- "$0")/.."
# shellcheck source-path=SCRIPTDIR source=events.sh
. scripts/events.sh

readonly all=(rootless verdicts runtimes agents page clusters hosts)

say() { printf '==> %s\n' "$*"; }

# packages TARGET prints the packages of a target.
packages() { awk -v target="$1" '$1 == target { print "./" $2 }' "$suite_table" | sort -u; }

# sandboxed prints the packages that have tests with sandboxes.
sandboxed() { grep -rl --include='*_test.go' 'test/containerdtest"' . | xargs -n 1 dirname | sort -u; }

# suite TARGET ARGUMENTS... runs the tests that the table gives to a target.
suite() {
	local target="$1" of
	shift
	mapfile -t of < <(packages "$target")
	scripts/go-test.sh -vet=off -timeout 40m -run "$(names "target == \"$target\"")" "$@" "${of[@]}"
}

run_test() {
	local pure with elsewhere others images failed=0
	scripts/base-image.sh >/dev/null & # while vet compiles
	images=$!
	others="$(names '!also && target != "root"')"
	say "test: go vet"
	go vet ./...
	mapfile -t with < <(sandboxed)
	mapfile -t elsewhere < <(awk '$3 == "*" { print "./" $2 }' "$suite_table")
	mapfile -t pure < <(go list ./... | grep -vxF -f <(go list "${with[@]}" "${elsewhere[@]}"))
	say "test: what needs no sandbox"
	gotestsum -- -p 2 -vet=off -skip "$others" "${pure[@]}" || failed=1
	say "test: what needs sandboxes"
	wait "$images" || [ -z "${CI:-}" ] # without it tests skip
	scripts/go-test.sh -vet=off -timeout 20m -skip "$others" "${with[@]}" || failed=1
	[ "${LESS:-}" = rootless ] || [ "$(id -u)" != 0 ] || ! unshare --mount true 2>/dev/null || scripts/test-rootless.sh --short || failed=1
	[ "$failed" = 0 ]
}

run_rootless() { scripts/test-rootless.sh; }
run_verdicts() {
	SBENCH_SOAK=1 suite verdicts
	say "verdicts: the table of docs/design/verdicts.md"
	verdicts
}
run_runtimes() {
	local failed=0
	nice -n 19 scripts/runtimes.sh compile >/dev/null & # while tests wait for what hangs
	suite runtimes || failed=1
	wait
	scripts/runtimes.sh || failed=1
	[ "$failed" = 0 ]
}
run_agents() { suite agents; }
run_page() { suite page; }
run_clusters() { suite clusters; }
run_hosts() { scripts/hosts/run.sh --short; }

# target NAME sets up and runs one target. It needs set -e, so it is run by `test.sh --one NAME`.
target() {
	if ! scripts/setup.sh "$1"; then
		[ "$1" = test ] && [ -z "${CI:-}" ]
		say "test: going on with what is here"
	fi
	make build
	"run_$1"
}

# skipped prints the names of the tests that were skipped.
skipped() { cat "$SBENCH_TEST_EVENTS"/* 2>/dev/null | sed -n 's/.*"Action":"skip","Package":"\([^"]*\)","Test":"\([^"]*\)".*/skipped: \1 \2/p'; }

main() {
	local targets=() name began took again=() failed
	if [ "${1:-}" = --one ]; then
		target "$2"
		return
	fi
	for name in "$@"; do
		case " test ${all[*]} " in
		*" $name "*) targets+=("$name") ;;
		*) [ "$name" = all ] || { say "no target $name: test ${all[*]}, or all"; exit 2; }; targets+=("${all[@]}") ;;
		esac
	done
	if [ -z "${SBENCH_TEST_EVENTS:-}" ]; then
		SBENCH_TEST_EVENTS="$(mktemp -d)"
		trap 'rm -r "$SBENCH_TEST_EVENTS"' EXIT
		export SBENCH_TEST_EVENTS
	fi
	for name in "${targets[@]}"; do
		began="$SECONDS"
		if scripts/test.sh --one "$name"; then
			took=passed
		else
			took=FAILED
			again+=("$name")
		fi
		say "$name: $took, $(((SECONDS - began) / 60)) min $(((SECONDS - began) % 60)) s"
	done
	skipped
	for name in "${again[@]}"; do
		say "to run it again: make $([ "$name" = test ] || printf test-)$name"
	done
	failed="$(count fail)"
	[ "$failed" -ge "${#again[@]}" ] || failed="${#again[@]}" # what ended before its first test
	printf '%s passed, %s failed, %s skipped\n' "$(count pass)" "$failed" "$(count skip)"
	[ "${#again[@]}" = 0 ]
	[ -z "${CI:-}" ] || [ "$(count skip)" = 0 ]
}

main "$@"
