#!/usr/bin/env bash
# go-test.sh ARGUMENTS...
#
# go test with the base image and sbench's shim. The private containerds of the tests, one for each
# package, live in a directory that is removed at the end. Two packages are tested at a time. With
# SBENCH_TEST_EVENTS only failures are printed: see events.sh. With SBENCH_TEST_MEMORY=1, as root, the
# volatile state is in memory, as on hosts whose /run is.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=events.sh
. "$(dirname "$0")/events.sh"

SBENCH_TEST_IMAGE="$("$(dirname "$0")/base-image.sh")" || SBENCH_TEST_IMAGE="" # tests skip, or fail in CI
SBENCH_TEST_DIR="$(mktemp -d /var/tmp/sbench-test.XXXXXX)"
chmod 711 "$SBENCH_TEST_DIR" # or sandboxes could not have ids of their own
export SBENCH_TEST_IMAGE SBENCH_TEST_DIR
trap 'umount -q "$SBENCH_TEST_DIR/state" || true; rm -rf "$SBENCH_TEST_DIR"' EXIT
mkdir -m 711 "$SBENCH_TEST_DIR/bin" "$SBENCH_TEST_DIR/state" "$SBENCH_TEST_DIR/root"
[ -z "${SBENCH_TEST_MEMORY:-}" ] || [ "$(id -u)" != 0 ] || mount -t tmpfs -o mode=711 sbench-test "$SBENCH_TEST_DIR/state"
go build -o "$SBENCH_TEST_DIR/bin/" ./cmd/containerd-shim-sbench-v1
export PATH="$SBENCH_TEST_DIR/bin:$PATH"

if [ -n "${SBENCH_TEST_EVENTS:-}" ]; then
	gotestsum -- -count=1 -p 2 "$@"
else
	go test -count=1 -p 2 "$@"
fi
