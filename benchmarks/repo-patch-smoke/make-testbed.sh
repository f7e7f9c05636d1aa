#!/bin/bash
# make-testbed.sh DIR
#
# Makes the git repository of this pack in DIR, which is empty or does not exist:
# the files of testbed/ in one commit. Author, dates, modes and git's settings are
# fixed, so that the commit has the same id on every machine: the base_commit of
# every row of tasks.jsonl, which it prints.
set -euo pipefail

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
dir="${1:?usage: make-testbed.sh DIR}"

export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
export GIT_AUTHOR_NAME=textkit GIT_AUTHOR_EMAIL=textkit@example.invalid GIT_AUTHOR_DATE='1700000000 +0000'
export GIT_COMMITTER_NAME=textkit GIT_COMMITTER_EMAIL=textkit@example.invalid GIT_COMMITTER_DATE='1700000000 +0000'
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
umask 022

mkdir -p -- "$dir"
cp -R -- "$here/testbed/." "$dir/"
find "$dir" -name __pycache__ -prune -exec rm -rf -- {} +
cd -- "$dir"
git -c init.defaultBranch=main init --quiet --object-format=sha1
git config core.fileMode false
git config core.autocrlf false
git add --all
git commit --quiet --no-gpg-sign --message 'textkit: slug and truncate'
git rev-parse HEAD
