#!/bin/bash
# sbench-check.sh: runs the task's test.sh and turns the reward that it writes
# into an exit status. 0 is a reward of 1 that a test run which ended with 0
# explains. Everything else, a partial reward too, is 1.
set -u
here="$(cd -- "$(dirname -- "$0")" && pwd)"
logs=@LOGS@/verifier

# Anywhere else, what is killed below is somebody's.
case "$here" in
/opt/securebench/evaluator/*) ;;
*) exit 1 ;;
esac

# A folder that nobody made before: the candidate is data until test.sh runs it.
rm -rf -- @LOGS@
mkdir -p -- "$logs" @LOGS@/agent @LOGS@/artifacts || exit 1
# @EXPORTS@
bash "$here/test.sh"
status=$?

fail() {
	printf 'sbench-check: %s\n' "$*"
	exit 1
}
[ "$status" = 0 ] || fail "test.sh ended with status $status"
# What still runs could write the reward itself.
! kill -KILL -1 2>/dev/null || fail "test.sh left processes behind"
rewards=0
for name in reward.txt reward.json; do
	[ -e "$logs/$name" ] || [ -L "$logs/$name" ] || continue
	rewards=$((rewards + 1))
	if [ -L "$logs/$name" ] || [ ! -f "$logs/$name" ]; then
		fail "$name is no file"
	fi
	[ "$(wc -c < "$logs/$name")" -le 4096 ] || fail "$name is too long for a reward"
	one='^[+]?1([.]0*)?$'
	[ "$name" = reward.txt ] || one='^[{]"[^"\\]+":1([.]0*)?(,"[^"\\]+":1([.]0*)?)*[}]$'
	value="$(tr -d ' \t\r\n' < "$logs/$name")"
	[[ "$value" =~ $one ]] || fail "the reward is $value and not 1"
	printf 'sbench-check: the reward is %s\n' "$value"
done
[ "$rewards" -gt 0 ] || fail "test.sh wrote no reward"
