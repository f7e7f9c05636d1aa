# shellcheck shell=sh
# repo.sh: sourced with $repo set, a repository of the image that only trusted
# programs have written. Makes sbench's own git directory /sbench/git on a
# volume. It reads the image's objects and nothing else of the image's git, so
# that git compares and applies plain bytes, whatever attributes, hooks, filters
# or configuration a work tree has. Sets $head.
export HOME=/sbench GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0 GIT_OPTIONAL_LOCKS=0 LC_ALL=C
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_EXTERNAL_DIFF GIT_ATTR_SOURCE || true

common=$(cd "${repo:?}" && cd "$(git -c safe.directory='*' rev-parse --git-common-dir)" && pwd)
head=$(cd "$repo" && git -c safe.directory='*' rev-parse --verify 'HEAD^{commit}')

export GIT_DIR=/sbench/git
if [ ! -d "$GIT_DIR" ]; then
	git init -q --bare "$GIT_DIR"
	for setting in core.bare=false core.hooksPath=/dev/null core.fsmonitor=false core.untrackedCache=false core.autocrlf=false \
		core.symlinks=true core.fileMode=true core.quotePath=true core.precomposeUnicode=false core.attributesFile=/dev/null \
		core.excludesFile=/dev/null core.bigFileThreshold=16m gc.auto=0 advice.addEmbeddedRepo=false safe.directory=*; do
		git config "${setting%%=*}" "${setting#*=}"
	done
	mkdir -p "$GIT_DIR/info"
	touch "$GIT_DIR/own"
	echo "$common/objects" > "$GIT_DIR/objects/info/alternates"
	if [ -f "$common/info/exclude" ]; then
		cat "$common/info/exclude" > "$GIT_DIR/info/exclude"
	fi
fi
# The file of highest precedence, gitattributes(5): back to plain bytes.
plain='* !text !eol !crlf !filter !ident !merge !working-tree-encoding !whitespace'
echo "$plain !diff" > "$GIT_DIR/info/attributes"

# snapshot TREE INDEX prints the tree object of a work tree. A file in INDEX, or in
# TREE's own index, counts even if an ignore rule names it. With SBENCH_IGNORED=yes
# all files count but those that $GIT_DIR/own names. What git cannot add does not
# count.
snapshot() (
	cd "$1" || exit
	export GIT_INDEX_FILE="$2"
	[ -f "$2" ] || git read-tree "$head"
	git --work-tree="$1" add --all --ignore-errors -- . || [ $? = 1 ]
	# Only if TREE's index has more than INDEX are TREE's files looked at once more.
	# Without -z, git quotes names, so that each is a line; BusyBox's comm has no -z.
	if [ -f .git/index ] && GIT_INDEX_FILE="$1/.git/index" git ls-files > /sbench/tracked && sort -o /sbench/tracked /sbench/tracked &&
		git ls-files | sort | comm -13 - /sbench/tracked > /sbench/more && [ -s /sbench/more ]; then
		git --work-tree="$1" ls-files --others --exclude-from="$GIT_DIR/own" | sort | comm -12 - /sbench/more |
			git --work-tree="$1" update-index --add --stdin || true
	fi
	if [ -n "${SBENCH_IGNORED:-}" ]; then
		git --work-tree="$1" ls-files -z --others --exclude-from="$GIT_DIR/own" > /sbench/ignored
		xargs -0 -r git --work-tree="$1" add --force -- < /sbench/ignored
	fi
	git --work-tree="$1" write-tree
)
