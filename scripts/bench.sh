#!/bin/bash
# bench.sh
#
# Measures the life of a sandbox (create, start, wait for `true`, delete) against
# rivals on the same machine, in the same run: what `go test -bench` cannot do
# because the rival is another program. Run by `make bench`, after the build and
# the image import. Results go to stdout, one line each; progress to stderr. A
# rival that is not here is skipped with a line that says so, and that is no
# failure.
set -euo pipefail

say() { printf 'bench: %s\n' "$*" >&2; }

# rival_docker measures `docker run -d` + `exec` + `rm -f` with the flags that
# match sbench's sandbox. It needs a Docker daemon (Debian's docker.io serves).
rival_docker() {
	if ! docker info >/dev/null 2>&1; then
		say "no docker daemon answers: skipping that rival"
		return
	fi
	say "docker: not measured yet"
}

rival_docker
