#!/bin/bash
# test-rootless.sh [PACKAGE... | --short]
#
# With PACKAGEs only their tests, and with RUN in the environment only the tests
# whose names match that expression, or with BENCH the benchmarks, and no looks from outside. With --short
# doctor, the contract suite, two limits and the smoke pack.
#
# As root: runs the tests of every package that talks to a daemon once more, as an
# ordinary user that is made for it and removed afterwards, with everything that
# user has: a home, a runtime directory, and subordinate ids. Then looks at that user's
# run from outside: see confined and unreachable below. The test programs are
# compiled by root, in whose cache they are.
set -euo pipefail

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$here"
# shellcheck source-path=SCRIPTDIR source=events.sh
. scripts/events.sh
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

readonly user=sbench-rootless-test
# The longest first, so that the others run beside it.
readonly default=(cmd/sbench verifiers/repo verifiers/split runtime/sandbox verifiers/code verifiers/terminal proxy runtime/images runtime/daemon runtime/watchdog runtime/rootless runtime/userns runtime/netns)

dir=""  # set by make_user
base="" # the archive of the base image; set by copy
become=() # runs a command as the user; set by main
run=()    # runs a pack as the user, with the output directory behind it; set by main
sbench="" # the program; set by main

say() { printf 'rootless: %s\n' "$*" >&2; }

# make_user sets dir to a directory that holds all that the user has.
make_user() {
	dir="$(mktemp -d /var/tmp/sbench.XXXXXX)"
	trap cleanup EXIT
	chmod 711 "$dir"
	useradd --no-log-init --shell /bin/sh --home-dir "$dir/home" --create-home "$user"
	if ! grep -q "^$user:" /etc/subuid || ! grep -q "^$user:" /etc/subgid; then
		usermod --add-subuids 1700000000-1700065535 --add-subgids 1700000000-1700065535 "$user"
	fi
	install -d -m 700 -o "$user" -g "$user" "$dir/run" "$dir/t" "$dir/home/out" # t: sockets' paths are short
}

cleanup() {
	local status=$? pid
	# What a failed test left must not keep the user's name.
	for pid in $(ps -o pid= -U "$user" 2>/dev/null); do kill -9 "$pid" 2>/dev/null || true; done
	for _ in 1 2 3 4 5; do # while what was killed ends
		if userdel "$user" 2>/dev/null || ! id "$user" >/dev/null 2>&1; then break; fi
		sleep 0.5
	done
	groupdel "$user" 2>/dev/null || true
	rm -rf "$dir"
	exit "$status"
}

# as_user COMMAND... runs it as the user, who knows nothing of root's environment.
as_user() { "${become[@]}" "$@"; }

# copy puts the sources, the base image and, unless short, what agents need and the data sets
# where the user can read them.
copy() {
	local data="${SBENCH_DATA:-$here/../shared/data}" cache archive
	mkdir "$dir/src"
	tar -C "$here" --exclude=./.git --exclude=./runs -cf - . | tar -C "$dir/src" -xf -
	archive="$(scripts/base-image.sh)"
	base="$dir/home/.cache/sbench/images/$(basename "$archive")"
	mkdir -p "$dir/home/.cache/sbench/images"
	if [ "${1:-}" = --short ]; then
		cp "$archive" "$base"
	else
		# Images are in one directory of the cache, and what belongs to agents in another.
		cache="$(dirname "$(dirname "$archive")")"
		tar -C "$cache" --exclude=./hosts -cf - . | tar -C "$dir/home/.cache/sbench" -xf -
		[ ! -d "$data" ] || cp -r "$data" "$dir/data"
	fi
	chown -R "$user:$user" "$dir/home/.cache" "$dir/src"
}

# test_packages PATTERN PACKAGE... runs their tests as the user, two packages at a time, or the benchmarks BENCH.
test_packages() (
	cd "$dir/src"
	arguments=(-count=1 -p 2 -vet=off -timeout 25m -exec "$dir/as-user")
	if [ -n "${BENCH:-}" ]; then
		go test "${arguments[@]}" -run '^$' -bench "$BENCH" -benchtime 150x "${@:2}"
	else
		gotestsum -- "${arguments[@]}" -run "$1" -skip "$(names 'target == "root" || target == "hosts" || same')" "${@:2}"
	fi
)

# doctor finds nothing that keeps the user from running sandboxes, but refuses gVisor. The runs below find the image.
doctor() {
	say "doctor"
	as_user "$sbench" --allow-degraded memory,pids,cpu doctor >"$dir/doctor"
	cat "$dir/doctor" >&2
	grep -q 'isolation gvisor .* without root: runsc makes' "$dir/doctor" || { say "no reason why there is no gVisor"; return 1; }
	as_user "$sbench" --address none image import "$base" >/dev/null
}

# smoke: a run has the verdicts of root's.
smoke() {
	say "a run"
	as_user "${run[@]}" "$dir/home/out/smoke" | grep -q 'verified=5 passed=3' || { say "the run has other verdicts"; return 1; }
}

# confined runs a pack where nothing can be written but home, runtime directory and
# output directory, and where no program is setuid but newuidmap and newgidmap.
confined() {
	say "a run with two setuid programs and three directories to write to"
	# shellcheck disable=SC2016 # the inner shell expands
	unshare --mount --propagation private bash -euc '
		dir="$1"; shift
		for program in newuidmap newgidmap; do # on a mount of their own, which keeps setuid
			at="$(command -v "$program")"
			mount --bind "$at" "$at"
		done
		for directory in "$dir/home" "$dir/run" "$dir/t"; do mount --bind "$directory" "$directory"; done
		while read -r point; do
			point="$(printf "%b" "$point")"
			case "$point" in
			*/newuidmap | */newgidmap) mount -o remount,bind,ro "$point" || exit 1 ;;
			"$dir/home" | "$dir/run" | "$dir/t") mount -o remount,bind,nosuid "$point" || exit 1 ;;
			/proc | /proc/* | /dev | /dev/* | /sys | /sys/*) ;;
			*) mount -o remount,bind,ro,nosuid "$point" || [ ! -e "$point" ] || exit 1 ;; # others may unmount theirs
			esac
		done < <(awk "!seen[\$5]++ { print \$5 }" /proc/self/mountinfo)
		if touch "$dir/src/x" 2>/dev/null || touch /tmp/sbench-x 2>/dev/null; then echo "not confined" >&2; exit 1; fi
		"$@"
	' confined "$dir" "${become[@]}" "${run[@]}" "$dir/home/out/run" |
		grep -q 'verified=5 passed=3' || { say "the confined run has other verdicts"; return 1; }
}

# sockets prints the sockets of the user's run, if there are any.
sockets() { find "$dir/run" -type s 2>/dev/null | grep .; }

# unreachable: while a run is there, another user reaches none of its sockets and
# reads nothing of it; and when it is over, its user can remove all of it.
unreachable() {
	local socket file pid nobody=(setpriv --reuid nobody --regid nogroup --clear-groups)
	say "another user looks at a run"
	as_user "${run[@]}" "$dir/home/out/watched" >/dev/null &
	pid=$!
	wait_for sockets >"$dir/sockets" || { say "the run has no socket"; return 1; }
	while read -r socket; do
		if "${nobody[@]}" python3 -c 'import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])' "$socket" 2>/dev/null; then
			say "nobody can connect to $socket"
			return 1
		fi
	done <"$dir/sockets"
	wait "$pid"
	for file in "$dir/home/out/watched/candidates.jsonl" "$dir/home/.local/share/sbench" "$dir/run/sbench"; do
		[ -e "$file" ] || { say "$file is not there"; return 1; }
		if "${nobody[@]}" ls "$file" >/dev/null 2>&1; then
			say "nobody can see $file"
			return 1
		fi
	done
	as_user rm -rf "$dir/home/out/watched" "$dir/home/out/run"
	[ -z "$(ls -A "$dir/home/out")" ] || { say "the user cannot remove the output"; return 1; }
}

main() {
	[ "$(id -u)" = 0 ] || { say "for root: an ordinary user runs make test itself"; exit 1; }
	local packages=("$@") name
	make_user
	become=(setpriv --reuid "$user" --regid "$user" --clear-groups --reset-env
		env HOME="$dir/home" TMPDIR="$dir/t" XDG_RUNTIME_DIR="$dir/run" LANG=C.UTF-8
		PATH="$dir/src/bin:$PATH" CI="${CI:-}" SBENCH_SOAK="${SBENCH_SOAK:-}" SBENCH_DATA="$dir/data"
		SBENCH_CACHE="$dir/home/.cache/sbench")
	copy "${1:-}"
	become+=(SBENCH_TEST_IMAGE="$base")
	# Go's own directory is closed to the user.
	# shellcheck disable=SC2016 # the script expands
	printf '#!/bin/bash\ncp -- "$1" . && exec %s "./${1##*/}" "${@:2}"\n' "${become[*]@Q} SBENCH_TEST_DIR='$dir/home/test'" >"$dir/as-user"
	chmod 755 "$dir/as-user"
	sbench="$dir/src/bin/sbench"
	run=("$sbench" --allow-degraded "memory,pids,cpu" run --progress none
		--config "$dir/src/benchmarks/terminal-task-smoke/tester-command.yaml" --output-dir)
	cd "$dir" # the user may not see the repository
	if [ "${1:-}" = --short ]; then
		doctor
		smoke
		event pass rootless smoke
		# Besides the contract, the two limits for which a user has no control group: the pattern
		# after the slash chooses subtests.
		test_packages '^TestContract$|^TestLimitReasons$/^(pids|memory)$' ./runtime/sandbox
		return
	fi
	[ "${#packages[@]}" -gt 0 ] || packages=("${default[@]}")
	test_packages "${RUN:-.}" "${packages[@]/#/./}"
	[ -z "${RUN:-}${BENCH:-}" ] || return 0
	for name in doctor confined unreachable; do
		"$name"
		event pass rootless "$name"
	done
	say "all passed as $user"
}

main "$@"
