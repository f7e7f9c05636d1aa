#!/bin/sh
# prepare.sh REPO BASE
#
# Brings the repository REPO of a fresh sandbox to the state in which its tests
# run: checks the commit, applies those patches below /opt/sbench/patches that
# exist, and checks which files the candidate's patch changed. Runs no code of
# the candidate. The exit code says which step failed; if it is the first, stdout
# is the commit of REPO.
set -eu
repo=$1 base=$2
patches=/opt/sbench/patches
# shellcheck source=candidate/trustedgit/repo.sh
(. /opt/sbench/git/repo.sh) || exit 15
# shellcheck source=candidate/trustedgit/repo.sh
. /opt/sbench/git/repo.sh

# apply PATCH OPTION...
apply() {
	[ -s "$patches/$1" ] || return 0
	(cd "$repo" && patch=$1 && shift && git --work-tree="$repo" apply --whitespace=nowarn "$@" -- "$patches/$patch")
}

[ "$(git rev-parse --verify --quiet "$base^{commit}")" = "$head" ] || { echo "$head" && exit 10; }
apply setup.patch || exit 11
apply test.patch --check || exit 16
before=$(snapshot "$repo" /sbench/index)
if [ -s "$patches/foreign" ]; then
	# shellcheck source=candidate/trustedgit/foreign.sh
	. /opt/sbench/git/foreign.sh
else
	apply candidate.patch || exit 12
fi
# snapshot passes over ignored files that the index does not have: this adds what the patch changes.
(cd "$repo" && GIT_INDEX_FILE=/sbench/index git --work-tree="$repo" update-index -z --add --remove --replace --stdin < "$patches/changed") || true
after=$(snapshot "$repo" /sbench/index)
git diff --name-only -z --no-renames "$before" "$after" | sort -z > /sbench/changed
cmp -s /sbench/changed "$patches/changed" || exit 13

# Files that the tests' patch touches get the base's version again, whatever the candidate did. The
# tree "after" still has the candidate's version.
if [ -s "$patches/restore" ]; then
	cd "$repo"
	xargs -0 rm -rf -- < "$patches/restore"
	# A path that the base lacks stays removed.
	GIT_INDEX_FILE=/sbench/restore git read-tree "$before"
	GIT_INDEX_FILE=/sbench/restore xargs -0 git --literal-pathspecs ls-files -z -- < "$patches/restore" > /sbench/in-base
	GIT_INDEX_FILE=/sbench/restore git --work-tree="$repo" checkout-index -z --force --stdin < /sbench/in-base
fi
apply test.patch || exit 14

# If both patches change a file of the product, both changes count. Where they overlap, the tests' change wins.
# shellcheck disable=SC2016 # the inner shell expands it
merge='
	base=$1 ours=$2 name=$3
	[ -f "$name" ] && [ ! -L "$name" ] || exit 0
	git cat-file blob "$base:$name" > /sbench/base.file 2> /dev/null || exit 0
	git cat-file blob "$ours:$name" > /sbench/ours.file 2> /dev/null || exit 0
	if git merge-file --quiet --theirs /sbench/ours.file /sbench/base.file "$name"; then
		cat /sbench/ours.file > "$name"
	fi
'
if [ -s "$patches/both" ]; then
	cd "$repo"
	xargs -0 -n 1 sh -c "$merge" merge "$before" "$after" < "$patches/both"
fi

# Prints the branches and tags with commits that the agent can read and the base lacks.
git --git-dir="$common" for-each-ref --no-merged "$head" --format='%(refname:short)' || true
# So may the reflog have them, and what a reset or a fetch leaves.
[ -z "$(git --git-dir="$common" rev-list --max-count=1 --ignore-missing --reflog ORIG_HEAD FETCH_HEAD --not --all "$head" --)" ] || echo reflog
