#!/bin/bash
# system.sh SUITE
#
# Builds a bootable Debian SUITE (bookworm, trixie, sid) for run.sh and prints
# the directory that it is in on stdout: disk.img, an ext4 file system; vmlinuz and
# initrd, its kernel. Progress goes to stderr. A second call finds the directory and
# builds nothing, unless it is older than 30 days.
#
# In the system are containerd and runc as Debian configures them, systemd,
# AppArmor, and an ordinary user u (1000), whose systemd runs from the start
# and who has subordinate ids. When it has booted it mounts the disk labelled
# "payload" read-only on /payload, runs /payload/start with its output on
# ttyS1, and powers off.
#
# The directory is ${SBENCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sbench}/hosts/
# SUITE-<hash of the recipe>. It appears by a rename, so that it is complete.
#
# Needs root, mmdebstrap and mke2fs; debian.sh says where packages come from.
set -euo pipefail

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
export SAY_PREFIX=hosts
# shellcheck source-path=SCRIPTDIR source=../debian.sh
. "$here/../debian.sh"
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

readonly packages="linux-image-cloud-amd64 systemd-sysv dbus dbus-user-session libpam-systemd udev kmod
	containerd runc crun apparmor uidmap iproute2 procps e2fsprogs ca-certificates git make python3
	gcc libc6-dev"
readonly days=30

# What would only take time of an emulated machine: consoles that nobody looks
# at, timers, and what waits for a network.
readonly masked="getty@tty1.service serial-getty@ttyS0.service apt-daily.timer apt-daily-upgrade.timer
	dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer man-db.timer
	systemd-timesyncd.service networking.service systemd-networkd-wait-online.service"

# customize ROOT OUT is mmdebstrap's hook: it configures the system in ROOT and
# writes the directory OUT.
customize() {
	local root="$1" out="$2" name
	chroot "$root" useradd --uid 1000 --create-home --shell /bin/bash u
	for name in subuid subgid; do
		grep -q '^u:' "$root/etc/$name" || echo 'u:100000:65536' >>"$root/etc/$name"
	done
	mkdir -p "$root/var/lib/systemd/linger" "$root/payload"
	touch "$root/var/lib/systemd/linger/u"
	echo host >"$root/etc/hostname"
	printf '127.0.0.1 localhost host\n' >"$root/etc/hosts"
	printf '/dev/vda / ext4 defaults 0 0\nLABEL=payload /payload ext4 ro,nofail 0 0\n' >"$root/etc/fstab"
	# Without one, systemd takes the boot for the first and sets every unit anew.
	tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id"
	cat >"$root/etc/systemd/system/payload.service" <<-'UNIT'
		[Unit]
		After=multi-user.target user@1000.service
		RequiresMountsFor=/payload
		[Service]
		Type=oneshot
		StandardOutput=file:/dev/ttyS1
		StandardError=inherit
		ExecStart=/payload/start
		ExecStopPost=/bin/systemctl poweroff --force --force
	UNIT
	mkdir -p "$root/etc/systemd/system/graphical.target.wants"
	ln -s ../payload.service "$root/etc/systemd/system/graphical.target.wants/payload.service"
	for name in $masked; do ln -sf /dev/null "$root/etc/systemd/system/$name"; done
	rm -rf "$root"/var/cache/apt/*.bin "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
	cp -L -- "$root"/boot/vmlinuz-* "$out/vmlinuz"
	cp -L -- "$root"/boot/initrd.img-* "$out/initrd"
	# Without what mmdebstrap has mounted there.
	mkdir "$out/root"
	mount --bind "$root" "$out/root"
	mke2fs -q -t ext4 -L system -d "$out/root" "$out/disk.img" 12G
	umount "$out/root"
	rmdir "$out/root"
}

# build SUITE DIRECTORY runs in a subshell of its own.
build() {
	local suite="$1" directory="$2" args=()
	stage="$(mktemp -d "$(dirname -- "$directory")/.new.XXXXXXXX")"
	trap 'rm -rf -- "$stage"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	# A mirror that is late has an expired list of the suite that moves daily.
	[ "$suite" != sid ] || args+=('--aptopt=Acquire::Check-Valid-Until "false";')
	debian "$suite" - --mode=root --format=null --include="$(tr -s ' \t\n' , <<<"$packages" | sed 's/,$//')" "${args[@]}" \
		--customize-hook="'$here/system.sh' --customize \"\$1\" '$stage'"
	rm -rf -- "$directory"
	mv -- "$stage" "$directory"
}

main() {
	local suite="${1:-}" directory
	umask 022
	case "$suite" in
	--customize)
		customize "$2" "$3"
		return
		;;
	bookworm | trixie | sid) ;;
	*) die "usage: system.sh bookworm|trixie|sid" ;;
	esac
	directory="$(cache_dir)/hosts/$suite-$(cat "$here/system.sh" "$here/../debian.sh" | sha256 | cut -c 1-16)"
	mkdir -p "$(dirname -- "$directory")"
	exec 9>"$(dirname -- "$directory")/.lock"
	flock 9
	if [ ! -d "$directory" ] || [ -n "$(find "$directory" -maxdepth 0 -mtime "+$days")" ]; then
		[ "$(id -u)" = 0 ] || die "building debian $suite needs root"
		say "building debian $suite (about two minutes)"
		# Of an earlier recipe, or of a build that was killed.
		rm -rf -- "$(dirname -- "$directory")"/.new.* "$(dirname -- "$directory")/$suite"-*
		(build "$suite" "$directory")
		say "built debian $suite in ${SECONDS}s"
	fi
	exec 9>&-
	printf '%s\n' "$directory"
}

main "$@"
