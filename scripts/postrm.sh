#!/bin/sh
# The deb's postrm. It removes the AppArmor profile that postinst.sh installed. A purge also removes what sbench, started by root, has kept on this machine:
# images of its private containerd, calibrations, locks. What users and runs have written
# elsewhere stays.
set -e

case "$1" in
remove | purge)
	profile=/etc/apparmor.d/usr.bin.sbench
	if [ -e "$profile" ]; then
		apparmor_parser -R "$profile" 2>/dev/null || true # not loaded
		rm -f "$profile"
	fi
	;;
esac
[ "$1" = purge ] || exit 0
for directory in /var/lib/sbench /run/sbench; do
	if grep -qs " ${directory}[ /]" /proc/self/mountinfo; then
		echo "sbench: $directory is kept, because something is mounted in it" >&2
	else
		rm -rf --one-file-system -- "$directory"
	fi
done
