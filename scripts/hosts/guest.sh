#!/bin/bash
# guest.sh SUITE short|full [STEP,...]
#
# Tests sbench on the machine that run.sh has booted, as root and as the
# ordinary user u. /payload has bin/ (sbench and test programs), tree/ (the
# repository), base.oci.tar and, unless short, dist/ (with the deb). With STEPs it does no
# others, which need an imported image all the same. On stdout is one line for each step,
#
#     hosts: SUITE WHO STEP ok|FAILED SECONDSs DETAIL
#
# behind a step that failed the end of what it printed, indented, and at last
# `hosts: SUITE - done ok SECONDSs`. The exit status is 0; run.sh reads the lines.
set -euo pipefail

readonly suite="$1" length="$2" only="${3:-}"
readonly payload=/payload
readonly path="$payload/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
readonly smoke="$payload/tree/benchmarks/terminal-task-smoke"
readonly work=/var/lib/hosts # logs, and packs of our own
export PATH="$path" LC_ALL=C.UTF-8
# shellcheck source-path=SCRIPTDIR source=../events.sh
. "$payload/tree/scripts/events.sh"

who="" # root or u; home, state, directory, out and ids are that user's
home=""
state=""
directory="" # of the tests' daemon; ids of sandboxes' own need one that others may pass
out=""
ids="" # what sandboxes must have

become() {
	who="$1"
	case "$who" in
	root) home=/root state=/run/sbench directory=/var/lib/tests ids=own ;;
	u) home=/home/u state=/run/user/1000/sbench directory=/home/u/t ids=nested ;;
	esac
	out="$home/out"
	as mkdir -p -m 711 "$directory"
	as mkdir -p "$out"
}

# as COMMAND... runs it as the user, as a service of systemd's would.
as() {
	local environment=(HOME="$home" PATH="$path" LANG=C.UTF-8 CI=true SBENCH_TEST_SLOWNESS=8
		SBENCH_TEST_DIR="$directory" SBENCH_TEST_IMAGE="$payload/base.oci.tar")
	case "$who" in
	root) env -i "${environment[@]}" "$@" ;;
	u)
		runuser -u u -- env -i "${environment[@]}" XDG_RUNTIME_DIR=/run/user/1000 \
			DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus "$@"
		;;
	esac
}

# step NAME COMMAND... runs a function and prints its line. The function's output
# is its log; what it writes with detail is printed behind the result.
step() {
	local name="$1" began="$SECONDS" status=0 result=ok
	shift
	[ -z "$only" ] || [ "$name" = machine ] || [[ ",$only," == *",$name,"* ]] || return 0
	: >"$work/detail"
	# Not in a condition, where set -e would not hold.
	set +e
	(
		set -e
		"$@"
	) >"$work/log" 2>&1
	status=$?
	set -e
	[ "$status" = 0 ] || result=FAILED
	printf 'hosts: %s %s %s %s %ss %s\n' "$suite" "$who" "$name" "$result" "$((SECONDS - began))" "$(tr '\n' ' ' <"$work/detail")"
	if [ "$status" != 0 ]; then
		grep -A 3 -e '^ *--- FAIL' -e '_test\.go:[0-9]*: ' "$work/log" | head -n 60 | cut -c 1-600 | sed 's/^/    /' || true
		tail -n 40 "$work/log" | cut -c 1-600 | sed 's/^/    /'
	fi
}

detail() { printf '%s\n' "$*" >>"$work/detail"; }

# records FILE EXPRESSION prints a Python expression over r, the list of records.
records() {
	python3 -c 'import json, sys; r = [json.loads(line) for line in open(sys.argv[1])]; print(eval(sys.argv[2]))' "$@"
}

versions() {
	local cgroups apparmor
	case "$(stat -fc %T /sys/fs/cgroup)" in
	cgroup2fs) cgroups=v2 ;;
	*) cgroups=v1 ;;
	esac
	apparmor="$(cat /sys/module/apparmor/parameters/enabled)"
	detail "kernel=$(uname -r)" "containerd=$(containerd --version | awk '{ print $3 }')" \
		"runc=$(runc --version | awk 'NR == 1 { print $3 }')" "crun=$(crun --version | awk 'NR == 1 { print $3 }')" \
		"systemd=$(systemctl --version | awk 'NR == 1 { print $2 }')" "cgroups=$cgroups" "apparmor=$apparmor"
	[ "$cgroups" = v2 ]
	[ "$apparmor" = Y ]
	systemctl is-active containerd.service user@1000.service
}

doctor() {
	local status=0
	as sbench doctor --json >"$work/doctor.json" || status=$?
	cat "$work/doctor.json"
	python3 -c '
import json, sys
findings = {f["check"]: f for f in json.load(sys.stdin)}
for check in "daemon", "sandbox ids":
    f = findings.get(check, {})
    print(check + ":", f.get("severity"), f.get("detail"))
for f in findings.values():
    if f["severity"] not in ("ok", "warn"):
        print("finding:", f["check"] + ":", f["detail"])
' <"$work/doctor.json" >>"$work/detail"
	[ "$status" = 0 ]
}

import() { as sbench image import "$payload/base.oci.tar"; }

# run NAME ARGUMENT... runs a pack, and prints in whose user namespace its
# sandboxes were and which limits the kernel did not enforce. It fails unless the
# first is what it must be.
run() {
	local name="$1" status=0 had
	shift
	as sbench run --output-dir "$out/$name" "$@" || status=$?
	records "$out/$name/candidates.jsonl" '"\n".join(sorted({str(x.get("failure_message")) for x in r if x["verification_status"] == "error"}))'
	had="$(records "$out/$name/candidates.jsonl" '",".join(sorted({x["provenance"]["host"].get("user_namespace", "none") for x in r}))')"
	detail "ids=$had" \
		"shim=$(records "$out/$name/candidates.jsonl" '",".join(sorted({x["provenance"]["host"].get("shim", "none") for x in r}))')" \
		"degraded=$(records "$out/$name/candidates.jsonl" '",".join(sorted({d for x in r for d in x.get("degraded", [])})) or "none"')"
	[ "$status" = 0 ] || return "$status"
	[ "$had" = "$ids" ]
}

smoke() {
	local status=0 line
	run smoke --config "$smoke/tester-command.yaml" || status=$?
	line="$(grep -o 'total=.*passed=[0-9]*' "$work/log" | tail -n 1)"
	detail "$line"
	[ "$status" = 0 ]
	[[ "$line" == *"total=5 "*"verified=5 passed=3" ]]
}

# limits: an agent that asks for more memory, processes and processor time than it
# may have gets what it may have, by the kernel, which the record says. A crash in a
# sandbox does not start the host's handler of core files, as one on the host does.
limits() {
	local pack="$work/limits" marks="$work/marks" reached
	mkdir -p "$pack"
	cat >"$pack/manifest.yaml" <<-'END'
		id: limits
		version: 1
		defaults:
		  family: terminal_task
		  environment: {image: sbench.local/base:bookworm, timeout_seconds: 120}
	END
	cat >"$pack/tasks.jsonl" <<-'END'
		{"id": "memory", "input": {"instructions": "memory"}, "eval": {"checker": {"command": "true"}}, "environment": {"resources": {"memory": "64mb"}}}
		{"id": "pids", "input": {"instructions": "pids"}, "eval": {"checker": {"command": "true"}}, "environment": {"resources": {"pids": 20}}}
		{"id": "cpu", "input": {"instructions": "cpu"}, "eval": {"checker": {"command": "true"}}, "environment": {"resources": {"cpus": 0.25}}}
		{"id": "crash", "input": {"instructions": "crash"}, "eval": {"checker": {"command": "grep -x 134 crashed"}}}
	END
	cat >"$pack/tester.yaml" <<-'END'
		schema_version: "0.2"
		run: {id: limits, output_dir: out}
		benchmark: {manifest: manifest.yaml, tasks: tasks.jsonl}
		harness:
		  type: command
		  config:
		    timeout_seconds: 120
		    command: |
		      case "$(cat task.json)" in
		        *'"memory"'*) exec python3 -c 'b = b"x" * (200 << 20)' ;;
		        *'"pids"'*) exec python3 -c '
		      import os, sys, time
		      try:
		          while True:
		              if os.fork() == 0: time.sleep(100)
		      except OSError: time.sleep(1); sys.exit(9)' ;;
		        *'"cpu"'*) for i in 1 2; do while :; do :; done & done; sleep 10 ;;
		        *'"crash"'*) ulimit -c 0; python3 -c 'import os; os.abort()'; echo $? >crashed ;;
		      esac
	END
	printf '%s\n' '#!/bin/sh' "echo \"\$1\" >>$marks" >"$work/handler"
	chmod 755 "$work/handler"
	rm -f "$marks"
	cp /proc/sys/kernel/core_pattern "$work/pattern"
	trap 'cat "$work/pattern" >/proc/sys/kernel/core_pattern' EXIT # of the step's shell
	echo "|$work/handler %e" >/proc/sys/kernel/core_pattern
	run limits --config "$pack/tester.yaml"
	bash -c 'kill -ABRT $$' || true
	wait_for grep -qx bash "$marks"
	reached="$(records "$out/limits/candidates.jsonl" '" ".join(x["task_id"] + "=" + ",".join(x["producer_metadata"].get("limits_reached", [x["verification_status"]])) for x in sorted(r, key=lambda x: x["task_id"]) if x["task_id"] != "cpu")')"
	reached+=" cpu=$(records "$out/limits/candidates.jsonl" '[round(m["usage"]["cpu_ns"] / 1e9 / m["wall_seconds"], 2) for x in r if x["task_id"] == "cpu" for m in [x["producer_metadata"]]][0]')/0.25"
	detail "$reached" "marks=$(tr '\n' ',' <"$marks")"
	if grep -E 'degraded=.*(memory|swap|pids|cpu)' "$work/detail"; then return 1; fi
	[[ "$reached" == *"crash=passed memory=memory pids=pids cpu="* ]]
	[ "$(sort -u "$marks")" = bash ]
	records "$out/limits/candidates.jsonl" 'all(m["usage"]["cpu_ns"] / 1e9 / m["wall_seconds"] < 0.6 for x in r if x["task_id"] == "cpu" for m in [x["producer_metadata"]])' | grep -qx True
}

# tests PROGRAM DIRECTORY PATTERN runs tests in the directory of their package.
tests() {
	local status=0 log="$work/tests"
	# The private daemon of the tests starts with what step import has imported: see shareBase in containerdtest.
	if [ "$who" = u ] && [ ! -e "$directory/shared" ]; then
		cp -al "$home/.local/share/sbench/containerd" "$directory/shared"
	fi
	cd "$payload/tree/$2"
	as "$payload/bin/$1" -test.v -test.timeout 6h -test.run "$3" >"$log" 2>&1 || status=$?
	grep -v ' level=DEBUG \|^=== ' "$log" || true
	detail "passed=$(grep -c '^ *--- PASS' "$log" || true)" "failed=$(grep -c '^ *--- FAIL' "$log" || true)" \
		"skipped=$(grep -c '^ *--- SKIP' "$log" || true)"
	[ "$status" = 0 ]
	grep -q '^--- PASS' "$log"
	# Tests in a lesser mode than the machine has prove nothing.
	if grep 'sandboxes cannot have their own ids' "$log"; then return 1; fi
}

sleeps() { pgrep -f '^sleep 600$' >/dev/null; }

# remains prints the processes that a killed run left: everything of containerd's
# in sbench's namespace and of the user's but the user's systemd.
remains() {
	pgrep -a -f '^sleep 600$|containerd-shim.* -namespace sbench' || true
	[ "$who" = root ] || ps -o pid=,stat=,args= -U u | awk '$2 !~ /^Z/' | grep -vE 'systemd|\(sd-pam\)|dbus-(daemon|broker)|ps -o' || true
}

gone() { [ -z "$(remains)" ]; }

# killed: after kill -9 of sbench in the middle of a run, gc removes what is left.
killed() {
	local pid removed
	sed -e 's/timeout_seconds: .*/timeout_seconds: 300/' -e '/command: |/,$d' "$smoke/tester-command.yaml" >"$work/sleeps.yaml"
	sed -i -e "s|manifest: |&$smoke/|" -e "s|tasks: |&$smoke/|" "$work/sleeps.yaml"
	printf '    command: exec sleep 600\n' >>"$work/sleeps.yaml"
	chmod 644 "$work/sleeps.yaml"
	as sbench run --config "$work/sleeps.yaml" --output-dir "$out/killed" --task '*/fails' &
	wait_for sleeps
	# Not env or runuser, which have the same words behind others.
	pid="$(pgrep -f '^[^ ]*sbench run ')"
	ps -o pid=,user=,args= "$pid"
	kill -9 "$pid"
	wait "$!" || true
	removed="$(as sbench gc)"
	detail "$removed"
	[[ "$removed" == *"removed what run"* ]]
	if ! wait_for gone; then
		remains
		return 1
	fi
	[ -z "$(ls -A "$state/runs")" ]
	if grep "$state/runs" /proc/self/mountinfo; then return 1; fi
	if find /sys/fs/cgroup -name '*sbench-*' -not -name sbench-supervisor | grep .; then return 1; fi
}

# deb: the package is installed, works, and leaves nothing. What it depends on is there.
deb() {
	local program=/usr/bin/sbench files left
	dpkg -i "$payload"/dist/sbench_*_amd64.deb
	mapfile -t files < <(dpkg -L sbench | grep sbench)
	detail "$("$program" version)"
	[ ! -e /etc/apparmor.d/abi/4.0 ] || [ -s /etc/apparmor.d/usr.bin.sbench ]
	as "$program" doctor
	as "$program" image import "$payload/base.oci.tar"
	as "$program" run --config "$smoke/tester-command.yaml" --output-dir "$out/deb"
	grep -q 'total=5 .*verified=5 passed=3' "$work/log"
	as "$program" gc
	dpkg --remove sbench
	dpkg --purge sbench
	left="$(ls -d "${files[@]}" /etc/apparmor.d/usr.bin.sbench /var/lib/sbench /run/sbench 2>/dev/null || true)"
	printf 'left: %s\n' "$left"
	[ -z "$left" ]
}

main() {
	local name
	mkdir -p "$work"
	chmod 755 "$work"
	become root
	step machine versions
	for name in root u; do
		become "$name"
		step doctor doctor
		step import import
		step smoke smoke
		step limits limits
		step killed killed
		if [ "$who" = root ]; then # what other tests on the same kernel would disturb
			step delegated tests cgroup.test runtime/cgroup TestDelegatedForReal
			step counts tests sandbox.test runtime/sandbox TestKernelCountsOfSandboxes
		fi
		if [ "$length" != short ]; then
			step shim tests sandbox.test runtime/sandbox '^(TestOneServerForARun|TestServerKilled|TestServerGivenUp|TestTracedByTheShim|TestPauseIsClosed|TestNullIsOwn|TestContract)$'
			step reasons tests sandbox.test runtime/sandbox 'TestLimitReasons|TestHogs|TestErrorQueue|TestNotItsOwn|TestProcTellsLittle'
			step probe tests sandbox.test runtime/sandbox TestProbe
			step verdicts tests sbench.test cmd/sbench TestVerdictsRecordByRecord
			step machines tests sbench.test cmd/sbench '^(TestMachineTasks|TestSetup|TestImageBuildOwn|TestSidecars|TestGradeWorkspaces)$'
			[ "$who" != root ] || step deb deb
		else
			# The other tests of the shim, and these as a user, take minutes here; test-runtimes and test-rootless have them.
			[ "$who" != root ] || step shim tests sandbox.test runtime/sandbox '^Test(OneServerForARun|TracedByTheShim|PauseIsClosed|Contract)$|^TestServerKilled$/^a process$'
			step probe tests sandbox.test runtime/sandbox 'TestProbe/^(hold a capability|become another user|names of the host in the mount table)$'
		fi
	done
	printf 'hosts: %s - done ok %ss\n' "$suite" "$SECONDS"
}

main
