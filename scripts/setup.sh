#!/bin/bash
# setup.sh [TARGET...]
#
# Makes sure that this machine has what sbench is built and run with, and what the TARGETs
# of test.sh need besides; the target check is `make check`. As root on a Debian it
# installs what is missing with apt-get; otherwise it prints the command that an
# administrator has to run, and exits 1. Where nothing is missing it runs no apt
# and changes nothing. Go is never installed: a missing or too old one is an
# error that says where to get it.
#
# Programs are looked for, not packages, so that a containerd or a runc from
# elsewhere counts. Everything is printed on stderr.
set -euo pipefail

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
# A plain user's PATH has no sbin on Debian, and a login shell no Go.
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/go/bin"

# invoke-rc.d asks this program before it starts a service.
readonly policy=/usr/sbin/policy-rc.d

say() { printf 'setup: %s\n' "$*" >&2; }

die() {
	say "$*"
	exit 1
}

# What a target needs: a package, and its programs or a file of it.
readonly needs='
all containerd containerd
all runc runc
all mmdebstrap mmdebstrap
all zstd zstd
all git git
all make make
all e2fsprogs mkfs.ext4
all curl curl
all xz-utils xz
all ca-certificates /etc/ssl/certs/ca-certificates.crt
user uidmap newuidmap newgidmap
test uidmap newuidmap newgidmap
test python3 python3
rootless uidmap newuidmap newgidmap
rootless python3 python3
rootless iproute2 ip
rootless procps pgrep ps
verdicts python3 python3
verdicts iproute2 ip
runtimes crun crun
runtimes gcc cc
runtimes pkg-config pkg-config
runtimes libseccomp-dev /usr/include/seccomp.h
runtimes libc6-dev /usr/include/features.h
page chromium chromium
clusters munge munged
clusters slurm-wlm slurmctld slurmd sbatch
hosts qemu-system-x86 qemu-system-x86_64
check shellcheck shellcheck
check gcc cc
check libc6-dev /usr/include/features.h
check openssh-client ssh-keygen
check rpm rpm
'

# find_missing TARGET... sets missing to the packages to install.
find_missing() {
	local target package program programs targets=" all $* "
	[ "$(id -u)" = 0 ] || targets+="user "
	missing=()
	while read -r target package programs; do
		[[ "$targets" == *" $target "* ]] || continue
		for program in $programs; do
			[[ "$program" == /* && -e "$program" ]] || command -v "$program" >/dev/null 2>&1 || {
				missing+=("$package")
				break
			}
		done
	done <<<"$needs"
}

apt() {
	DEBIAN_FRONTEND=noninteractive apt-get -q -y \
		-o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" >&2
}

install_missing() {
	command -v apt-get >/dev/null 2>&1 ||
		die "missing: ${missing[*]} (Debian's package names), and there is no apt-get to install them with"
	if [ "$(id -u)" != 0 ]; then
		say "missing: ${missing[*]}. as an administrator, run:"
		say "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
		exit 1
	fi
	say "installing ${missing[*]} with apt-get"
	apt update || die "apt-get update: no package list, see above"
	local status=0 wanted="${missing[*]}"
	if [ ! -d /run/systemd/system ] && [ ! -e "$policy" ]; then # services would fail to start
		trap 'rm -f -- "$policy"' EXIT
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod 0755 "$policy"
	fi
	apt install --no-install-recommends "${missing[@]}" || status=$?
	hash -r
	find_missing "$@"
	[ "${#missing[@]}" = 0 ] || die "apt-get install $wanted: still missing: ${missing[*]} (exit status $status)"
	[ "$status" = 0 ] || say "apt-get exited with $status, but everything needed is here: going on"
}

# check_go fails unless a Go is here that can build this module. Go itself
# compares its version with go.mod, and may fetch the toolchain it names.
check_go() {
	local want have
	want="$(awk '$1 == "go" { print $2; exit }' "$here/../go.mod")"
	have="$(cd "$here/.." && go env GOVERSION 2>/dev/null)" || have=""
	[ "$(printf '%s\n' "$want" "${have#go}" | sort -V | head -n 1)" != "$want" ] || return 0
	say "Go $want or later is required, ${have:-$(go version 2>/dev/null || echo none)} was found"
	say "Debian 12's own golang package is older. get the linux archive from https://go.dev/dl/ and unpack it as /usr/local/go"
	say "  (rm -rf /usr/local/go && tar -C /usr/local -xzf go*.linux-$(dpkg --print-architecture 2>/dev/null || uname -m).tar.gz)"
	exit 1
}

main() {
	check_go
	local missing=()
	find_missing "$@"
	if [ "${#missing[@]}" -gt 0 ]; then
		install_missing "$@"
	fi
	say "everything needed is here"
}

main "$@"
