#!/bin/sh
# diff.sh REPO TREE FORM EXCLUDE...
#
# Prints the difference between the work tree of the image's repository REPO and
# the directory TREE, which an agent may have written. Of TREE, git reads only
# plain files, ignore rules and the names in the index. With FORM "binary", git shows
# every change as binary, so that the output is ASCII. New files of more than
# SBENCH_MOST KiB do not count. With SBENCH_IGNORED=yes files that the ignore
# rules of TREE name count, too, but not those of EXCLUDE. Writes to
# /sbench/left-out what does not count, and is neither ignored nor named by
# EXCLUDE.
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
# TREE is a copy: nobody has to read what its owner could not, but git.
find "$tree" -path "$tree/.git" -prune -o \( -type f ! -perm -400 -o -type d ! -perm -500 \) -exec chmod u+rwX {} \; >&2 || true
after=$(snapshot "$tree" /sbench/after)
cd "$tree"
# shellcheck disable=SC2031 # the subshell is snapshot's
export GIT_WORK_TREE="$tree" GIT_INDEX_FILE=/sbench/after
find . -path ./.git -prune -o -type f -size "+${SBENCH_MOST}k" -print0 > /sbench/big
# shellcheck disable=SC2016 # the inner shell expands it
xargs -0 -r sh -c 'for name; do git cat-file -e "$0:${name#./}" 2> /dev/null || printf "%s\0" "${name#./}"; done' "$before" < /sbench/big |
	git update-index --force-remove -z --stdin
after=$(git write-tree)
rules=--exclude-standard
[ -z "${SBENCH_IGNORED:-}" ] || rules=--exclude-from=$GIT_DIR/own
(git ls-files -z --others "$rules" && git diff-files -z --name-only) | head -c 65536 > /sbench/left-out
exec git diff --binary --full-index --no-renames --no-ext-diff --no-textconv --no-color --src-prefix=a/ --dst-prefix=b/ "$before" "$after"
