#!/bin/bash
# sbench-check.sh: runs the task's test.sh and turns the reward that it writes
# into an exit status. 0 is a reward of 1 that a test run which ended with 0
# explains. Everything else, a partial reward too, is 1.
set -u
here="$(cd -- "$(dirname -- "$0")" && pwd)"
logs=@LOGS@/verifier

# A folder that nobody made before: the candidate is data until test.sh runs it.
rm -rf -- @LOGS@
mkdir -p -- "$logs" @LOGS@/agent @LOGS@/artifacts || exit 1
# @EXPORTS@
bash "$here/test.sh"
status=$?
# What the tests left running cannot write the reward any more.
kill -KILL -1 2>/dev/null

fail() {
	printf 'sbench-check: %s\n' "$*"
	exit 1
}
[ "$status" = 0 ] || fail "test.sh ended with status $status"
if [ -e "$logs/reward.txt" ] || [ -L "$logs/reward.txt" ]; then
	reward="$logs/reward.txt"
	one='^[+]?1([.]0*)?$'
else
	reward="$logs/reward.json"
	one='^[{]"[^"\\]+":1([.]0*)?(,"[^"\\]+":1([.]0*)?)*[}]$'
fi
[ ! -L "$reward" ] && [ -f "$reward" ] || fail "test.sh wrote no reward"
[ "$(wc -c < "$reward")" -le 4096 ] || fail "the reward is no number"
value="$(tr -d ' \t\r\n' < "$reward")"
[[ "$value" =~ $one ]] || fail "the reward is $value and not 1"
printf 'sbench-check: the reward is %s\n' "$value"
