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
done
if [ "$form" = binary ]; then
	echo "$plain -diff" > "$GIT_DIR/info/attributes"
fi
before=$(snapshot "$repo" /sbench/before)
cp /sbench/before /sbench/after
after=$(snapshot "$tree" /sbench/after)
if [ -n "${SBENCH_IGNORED:-}" ]; then
	cd "$tree"
	for path; do
		printf '/%s\n' "$path"
	done > /sbench/excluded
	GIT_INDEX_FILE=/sbench/after git --work-tree="$tree" ls-files -z --others --exclude-from=/sbench/excluded > /sbench/ignored
	GIT_INDEX_FILE=/sbench/after xargs -0 -r git --work-tree="$tree" add --force -- < /sbench/ignored
	after=$(GIT_INDEX_FILE=/sbench/after git write-tree)
fi
exec git diff --binary --full-index --no-renames --no-ext-diff --no-textconv --no-color --src-prefix=a/ --dst-prefix=b/ "$before" "$after"
