#!/usr/bin/env bash
# Puts the base image into the Docker daemon that answers (DOCKER_HOST counts),
# for the benchmarks in which Docker is the rival. Without a daemon it says so
# and does nothing: sbench itself never uses Docker.
set -euo pipefail

name=sbench.local/base:bookworm
archive="${1:?usage: docker-image.sh ARCHIVE}"

if ! docker info >/dev/null 2>&1; then
	echo "bench: no Docker daemon answers: measuring without that rival (apt-get install docker.io, start dockerd)" >&2
	exit 0
fi
if docker image inspect "$name" >/dev/null 2>&1; then
	exit 0
fi
echo "bench: giving Docker the base image" >&2
# The archive's one layer is its largest file; Docker 20 reads no OCI layouts.
layer="$(tar -tvf "$archive" | sort -k3 -n -r | awk 'NR == 1 { print $NF }')"
tar -xOf "$archive" "$layer" | zstd -dc | docker import --change 'CMD ["bash"]' - "$name" >&2
