# shellcheck shell=bash
# events.sh: functions that choose tests, wait, and record how tests end. Sourced by the scripts that run
# tests, in the root of the repository.
#
# SBENCH_TEST_EVENTS is a directory. Each file in it has events as test2json writes them, one a
# line, for test.sh to count. Without the variable nothing is recorded.

# The flags of make build, whose compiled packages the tests then share.
export CGO_ENABLED=0 GOFLAGS="-trimpath ${GOFLAGS:-}"

# gotestsum ARGUMENTS... runs gotestsum, which prints the tests that fail and the packages.
gotestsum() {
	local record=()
	[ -z "${SBENCH_TEST_EVENTS:-}" ] || record=(--jsonfile "$(mktemp "$SBENCH_TEST_EVENTS/XXXXXX")")
	go tool -modfile=scripts/tools/go.mod gotestsum --format pkgname-and-test-fails "${record[@]}" "$@"
}

# event pass|fail|skip SUITE TEST records the end of a test that is no Go test.
event() {
	[ -z "${SBENCH_TEST_EVENTS:-}" ] ||
		printf '{"Action":"%s","Package":"%s","Test":"%s"}\n' "$@" >>"$SBENCH_TEST_EVENTS/others"
}

# count pass|fail|skip prints how many tests ended so, subtests included.
count() { cat "$SBENCH_TEST_EVENTS"/* 2>/dev/null | grep -c "\"Action\":\"$1\",\"Package\":\"[^\"]*\",\"Test\":" || true; }

# verdicts prints how many forged and honest candidates the tests judged, in each family, and how
# they ended. A test says so by the attribute "verdict", as "FAMILY forged|honest RESULT".
verdicts() {
	cat "$SBENCH_TEST_EVENTS"/* | sed -n 's/.*"Action":"attr".*"Key":"verdict","Value":"\([^"]*\)".*/\1/p' | awk '
		{ rows[$1 " | " $2]; if (!($3 ~ /^(sealed|contrasted|executed|failed)$/)) $3 = "other"; count[$1 " | " $2, $3]++ }
		END {
			print "| family | candidates | sealed | contrasted | executed | failed | neither |\n|---|---|---|---|---|---|---|"
			for (row in rows)
				printf "| %s | %d | %d | %d | %d | %d |\n", row, count[row, "sealed"], count[row, "contrasted"], count[row, "executed"], count[row, "failed"], count[row, "other"] | "sort"
		}'
}

# wait_for COMMAND... runs it until it succeeds, for five minutes: a machine can be busy, or emulated.
wait_for() {
	local deadline=$((SECONDS + 300))
	until "$@"; do
		[ "$SECONDS" -lt "$deadline" ] || return 1
		sleep 0.1
	done
}

suite_table=scripts/suites

# names EXPRESSION prints a regular expression of the tests in the table of suites for which the awk
# EXPRESSION holds: target is the target's name, also says that make test has a short form, same that
# another user or runtime changes nothing.
names() {
	awk '!/^#/ {
		target = $1
		for (i = 3; i <= NF; i++) {
			name = $i
			also = sub(/^\+/, "", name)
			same = sub(/^-/, "", name)
			if (name != "*" && ('"$1"')) list = list (list ? "|" : "") name
		}
	}
	END { print "^(" list ")$" }' "$suite_table"
}
