#!/bin/sh
# diff.sh REPO TREE FORM EXCLUDE...
#
# Prints the difference between the work tree of the image's repository REPO and
# the directory TREE, which an agent may have written. Only plain files and
# ignore rules of TREE count. With FORM "binary", git shows every change as
# binary, so that the output is ASCII. With SBENCH_IGNORED=yes files that the
# ignore rules of TREE name count, too, but not those of EXCLUDE.
set -eu
repo=$1 tree=$2 form=$3
shift 3
# shellcheck source=candidate/trustedgit/repo.sh
. /opt/sbench/git/repo.sh

for path; do
	printf '/%s\n' "$path" >> "$GIT_DIR/info/exclude"
	printf '/%s\n' "$path" >> "$GIT_DIR/own"
done
if [ "$form" = binary ]; then
	echo "$plain -diff" > "$GIT_DIR/info/attributes"
fi
before=$(snapshot "$repo" /sbench/before)
cp /sbench/before /sbench/after
after=$(snapshot "$tree" /sbench/after)
exec git diff --binary --full-index --no-renames --no-ext-diff --no-textconv --no-color --src-prefix=a/ --dst-prefix=b/ "$before" "$after"
