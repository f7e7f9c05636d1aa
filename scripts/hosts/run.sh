#!/bin/bash
# run.sh [--short] [--only STEP,...] [SUITE...]
#
# Tests sbench on whole Debian machines: bookworm, trixie and sid (with --short
# trixie alone), each with its own kernel, systemd, control groups of version 2,
# AppArmor, containerd and runc, as root and as an ordinary user whose systemd
# delegates control groups. guest.sh says what is tested; --short leaves the
# long tests out, and --only all steps but those named. The machines are emulated,
# one after the other.
#
# A line for each step goes to stderr as it ends. The exit status is 1 if a step
# failed, or a machine did not get to its last one; then the directory with its
# console's output is kept, and named.
#
# The systems are built and kept by system.sh.
# Needs what `setup.sh hosts` installs, Go, and for the build of a system
# root. SBENCH_HOSTS_ACCEL is qemu's -accel: "tcg,thread=multi" unless it is set,
# since that works everywhere; "kvm" is many times faster. A machine has
# SBENCH_HOSTS_CPUS processors, 2 unless it is set: 1 where two machines run at a time.
set -euo pipefail

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
export SAY_PREFIX=hosts
# shellcheck source-path=SCRIPTDIR source=../debian.sh
. "$here/../debian.sh"
# shellcheck source-path=SCRIPTDIR source=../events.sh
. "$here/../events.sh"
PATH="$PATH:/usr/local/go/bin:/usr/local/sbin:/usr/sbin:/sbin"

readonly accel="${SBENCH_HOSTS_ACCEL:-tcg,thread=multi}" cpus="${SBENCH_HOSTS_CPUS:-2}"

length=full
only=""
suites=()
stage=""
machine="" # the process that runs qemu
failed=""

arguments() {
	while [ $# -gt 0 ]; do
		case "$1" in
		--short) length=short ;;
		--only)
			[ $# -gt 1 ] || die "--only names steps: --only import,smoke"
			only="$2"
			shift
			;;
		bookworm | trixie | sid) suites+=("$1") ;;
		*) die "usage: run.sh [--short] [--only STEP,...] [bookworm|trixie|sid]..." ;;
		esac
		shift
	done
	[ "${#suites[@]}" -gt 0 ] || case "$length" in
	short) suites=(trixie) ;;
	*) suites=(bookworm trixie sid) ;;
	esac
}

clean_up() {
	[ -z "$machine" ] || kill "$machine" 2>/dev/null || true
	rm -rf -- "$stage/payload" "$stage/payload.img"
	if [ -n "$failed" ]; then
		say "kept: $stage"
	else
		rm -rf -- "$stage"
	fi
}

# make_payload makes the disk that is the same for every machine: programs, the
# repository, the base image.
make_payload() {
	local payload="$stage/payload"
	say "compiling sbench and its tests"
	mkdir -p "$payload/bin" "$payload/tree"
	tar -C "$here/../.." --exclude=./.git --exclude=./runs --exclude=./bin -cf - . | tar -C "$payload/tree" -xf -
	(
		cd "$payload/tree"
		export CGO_ENABLED=0
		go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=hosts" -o "$payload/bin/" ./cmd/...
		go test -c -ldflags -s -o "$payload/bin/" ./runtime/sandbox ./runtime/cgroup
		[ "$length" = short ] || go test -c -ldflags -s -o "$payload/bin/" ./cmd/sbench
	)
	[ "$length" = short ] || "$here/../dist.sh" --arch amd64 --container no --out "$payload/dist"
	cp -- "$("$here/../base-image.sh")" "$payload/base.oci.tar"
	cat >"$payload/start" <<-'END'
		#!/bin/bash
		stty -onlcr <&1
		# Group of a quota that is there all the time, so that the kernel's code for
		# quotas is not switched on and off with each sandbox: see boot in run.sh.
		echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
		mkdir /sys/fs/cgroup/quota
		echo '50000 100000' >/sys/fs/cgroup/quota/cpu.max
		# What this boot is for is the last word of the kernel's command line.
		read -ra words </proc/cmdline
		IFS=: read -r suite length only <<<"${words[-1]#hosts=}"
		exec /payload/tree/scripts/hosts/guest.sh "$suite" "$length" "$only"
	END
	chmod 755 "$payload/start"
	chmod -R a+rX "$payload"
	mke2fs -q -t ext4 -L payload -E root_owner=0:0 -d "$payload" "$stage/payload.img" 1G >&2
}

# test_host SUITE runs a machine to its end. A kernel that changes its own code may
# stop at the breakpoint that it has just taken away ("Oops: int3"), which is the
# emulator's mistake: with more than one processor it may run what it has translated
# before. Then, and for nothing else, the machine is run again.
test_host() {
	local suite="$1" system
	system="$("$here/system.sh" "$suite")"
	for _ in 1 2 3; do
		boot "$suite" "$system"
		grep -q 'Oops: int3\|int3: 0000' "$stage/$suite.console" || break
		say "$suite: the emulator stopped the kernel: once more"
	done
}

# boot SUITE SYSTEM writes the machine's lines to SUITE.results, and what its kernel
# says to SUITE.console. What it writes to its own disk is gone afterwards. Page tables
# of four levels, as most machines have, are walked faster than those of five. Where the
# processor has AVX2, Go hashes and the C library copies with it, which the emulator does
# slower than without. The kernel's test of its timer (no_timer_check) would fail where
# the emulator has to wait.
boot() {
	local suite="$1" system="$2" limit=3h lines
	[ "$length" != short ] || limit=30m
	say "$suite boots"
	: >"$stage/$suite.results"
	TMPDIR="$stage" timeout --kill-after=10 "$limit" qemu-system-x86_64 -accel "$accel" -cpu max,-avx,-avx2 -smp "$cpus" -m 4G \
		-kernel "$system/vmlinuz" -initrd "$system/initrd" \
		-append "console=ttyS0 root=/dev/vda rw quiet panic=1 mitigations=off no5lvl no_timer_check systemd.show_status=0 hosts=$suite:$length:$only" \
		-drive "file=$system/disk.img,if=virtio,format=raw,snapshot=on,cache=unsafe" \
		-drive "file=$stage/payload.img,if=virtio,format=raw,readonly=on" \
		-nic none -display none -no-reboot -monitor none \
		-serial "file:$stage/$suite.console" -serial "file:$stage/$suite.results" </dev/null &
	machine=$!
	tail -n +1 -f --pid="$machine" "$stage/$suite.results" >&2 &
	lines=$!
	wait "$machine" || say "$suite: qemu ended with status $?"
	machine=""
	wait "$lines" || true
}

# judge sets failed unless every step of SUITE is ok and the machine got to the end.
judge() {
	local results="$stage/$1.results"
	if ! grep -q "^hosts: $1 - done " "$results"; then
		say "$1: the machine did not get to its last step; the end of $stage/$1.console:"
		tail -n 20 "$stage/$1.console" >&2 || true
		failed=1
	fi
	if grep -q "^hosts: $1 [a-z]* [a-z]* FAILED " "$results"; then failed=1; fi
	local who step how
	while read -r _ _ who step how _; do
		if [ "$how" = ok ]; then event pass "hosts/$1" "$who/$step"; else event fail "hosts/$1" "$who/$step"; fi
	done < <(grep "^hosts: $1 " "$results")
}

main() {
	local suite
	umask 022
	arguments "$@"
	[ "$(uname -m)" = x86_64 ] || die "the machines are emulated on amd64 alone"
	stage="$(mktemp -d "${TMPDIR:-/var/tmp}/sbench-hosts.XXXXXX")"
	trap clean_up EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	make_payload
	for suite in "${suites[@]}"; do
		test_host "$suite"
		judge "$suite"
	done
	[ -z "$failed" ] || exit 1
}

main "$@"
