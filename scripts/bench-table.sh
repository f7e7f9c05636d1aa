#!/usr/bin/env bash
# bench-table.sh RESULTS [PAGE]
#
# Prints a table of what the benchmarks in the file RESULTS (the output of go test -bench, as
# benchstat reads it) measured, with the ratios to the rivals and the aims. With PAGE, it
# replaces the lines between "<!-- figures -->" and "<!-- end of figures -->" there, unless
# one of the rivals is missing.
set -euo pipefail

table() {
	awk '
	/^Benchmark/ {
		sub(/-[0-9]+$/, "", $1)
		for (i = 3; i < NF; i += 2) value[$1, $(i + 1)] = $i
	}
	function number(x, unit) { return x == "" ? "not measured" : sprintf(x < 10 ? "%.1f" : "%.0f", x) unit }
	function each(rate) { return rate == "" ? "" : 1000 / rate }
	# row TEXT OURS THEIRS AIM SIGN: SIGN is 1 if the ratio is to be at least the aim, -1 if at most.
	function row(text, ours, theirs, aim, sign, unit,    ratio, verdict) {
		ratio = "-"; verdict = "not measured"
		if (ours != "" && theirs != "") {
			ratio = ours / theirs
			verdict = sign * (ratio - aim) >= 0 ? "met" : "missed"
			ratio = sprintf("%.1f", ratio)
		}
		printf "| %s | %s | %s | %s | %s %s | %s |\n", text, number(ours, unit), number(theirs, unit), ratio, (sign > 0 ? "at least" : "at most"), aim, verdict
	}
	function tasks(rival) { return value["BenchmarkThroughput/" rival "/jobs=8", "tasks/min"] }
	function proxy(rival, way, what) { return value["BenchmarkProxy/" way, rival "-" what] }
	function life(rival, parallel, what) { return value["BenchmarkLife/" rival "/parallel=" parallel, what] }
	END {
		print "| | sbench | rival | ratio | aim | |"
		print "|---|---|---|---|---|---|"
		row("life of a sandbox, p50, rival `runc run`", life("sbench", 1, "p50-ms"), life("runc-run", 1, "p50-ms"), 1.6, -1, " ms")
		row("lives a second, 8 in parallel, rival Docker", life("sbench", 8, "lives/s"), life("docker", 8, "lives/s"), 8, 1, "")
		row("tasks a minute, 8 jobs, rival Docker", tasks("sbench"), tasks("docker"), 6, 1, "")
		row("HumanEval, sealed, 2 jobs, time of one, rival a plain process", each(value["BenchmarkHumanEval/sealed/jobs=2", "verifications/s"]), each(value["BenchmarkHumanEval/plain/jobs=2", "verifications/s"]), 2, -1, " ms")
		row("HumanEval with gVisor, sealed, 2 jobs, time of one, rival runc", each(value["BenchmarkHumanEval/sealed-gvisor/jobs=2", "verifications/s"]), each(value["BenchmarkHumanEval/sealed/jobs=2", "verifications/s"]), 5, -1, " ms")
		row("HumanEval with gVisor, beside the tests, 2 jobs, time of one, rival runc", each(value["BenchmarkHumanEval/contrasted-gvisor/jobs=2", "verifications/s"]), each(value["BenchmarkHumanEval/contrasted/jobs=2", "verifications/s"]), 5, -1, " ms")
		row("life of a sandbox with gVisor, p50, rival Docker", life("sbench-gvisor", 1, "p50-ms"), life("docker", 1, "p50-ms"), 0.8, -1, " ms")
		row("CONNECT through the proxy, p50, rival goproxy", proxy("sbench", "connect/parallel=1", "p50-us"), proxy("library", "connect/parallel=1", "p50-us"), 1.2, -1, " µs")
		split("down up", ways)
		for (i = 1; i in ways; i++) {
			row("bytes a second, eight tunnels " ways[i] ", rival goproxy", proxy("sbench", ways[i] "/parallel=8", "GB/s"), proxy("library", ways[i] "/parallel=8", "GB/s"), 1, 1, " GB/s")
			row("CPU time for a gigabyte, eight tunnels " ways[i] ", rival goproxy", proxy("sbench", ways[i] "/parallel=8", "all-cpu-s/GB"), proxy("library", ways[i] "/parallel=8", "all-cpu-s/GB"), 1.2, -1, " s")
		}
		ours = value["BenchmarkSplit/sbench", "ns/op"] / 1e9; theirs = value["BenchmarkSplit/docker", "ns/op"] / 1e9
		if (ours && theirs) printf "| a split check of 64 questions, each in a sandbox of its own, rival Docker | %.1f s | %.1f s | %.1f | at most 4 s | %s |\n", ours, theirs, ours / theirs, (ours <= 4 ? "met" : "missed")
		memory = value["BenchmarkIdle/sbench", "MiB/sandbox"]
		printf "| memory of an idle sandbox over that of its processes | %s | | | at most 4 MiB | %s |\n", number(memory, " MiB"), (memory == "" ? "not measured" : memory <= 4 ? "met" : "missed")
		print "\n| | p50, one at a time | sandboxes per second, 1 / 8 / 32 in parallel | tasks a minute, 8 jobs |"
		print "|---|---|---|---|"
		split("runc-run sbench sbench-host-ids sbench-crun sbench-gvisor docker", rivals)
		text["runc-run"] = "`runc run`, attached, nothing read back"
		text["sbench"] = "sbench"
		text["sbench-host-ids"] = "sbench with the ids of the host"
		text["sbench-crun"] = "sbench with crun"
		text["sbench-gvisor"] = "sbench with gVisor"
		text["docker"] = "`docker run -d`, `exec`, `rm -f`"
		for (i = 1; i in rivals; i++) {
			r = rivals[i]
			if (life(r, 1, "p50-ms") == "") { missing = 1; continue }
			printf "| %s | %s | %s / %s / %s | %s |\n", text[r], number(life(r, 1, "p50-ms"), " ms"), number(life(r, 1, "lives/s")), number(life(r, 8, "lives/s")), number(life(r, 32, "lives/s")), tasks(r) == "" ? "" : number(tasks(r))
		}
		exit missing ? 3 : 0
	}' "$1"
}

status=0
text="$(table "$1")" || status=$?
printf '%s\n' "$text"
[ "$status" = 0 ] || [ "$status" = 3 ] || exit "$status"
if [ $# = 2 ] && [ "$status" = 0 ]; then
	text="$text" awk '
		/^<!-- end of figures -->$/ { inside = 0 }
		!inside { print }
		/^<!-- figures -->$/ { print ENVIRON["text"]; inside = 1 }
	' "$2" >"$2.new"
	mv -- "$2.new" "$2"
elif [ $# = 2 ]; then
	echo "bench: not every rival was measured: $2 is not changed" >&2
fi
