#!/bin/sh
# The deb's postinst. Where AppArmor knows user namespaces (Ubuntu 23.10, Debian 13) it installs the
# profile with which ordinary users can run sbench, and loads it where AppArmor is on.
set -e

profile=/etc/apparmor.d/usr.bin.sbench
[ "$1" = configure ] && [ -e /etc/apparmor.d/abi/4.0 ] || exit 0
cp /usr/share/sbench/apparmor "$profile"
if [ "$(cat /sys/module/apparmor/parameters/enabled 2>/dev/null)" = Y ] && command -v apparmor_parser >/dev/null; then
	apparmor_parser -r "$profile" || echo "sbench: the AppArmor profile $profile could not be loaded" >&2
fi
