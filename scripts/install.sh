#!/bin/bash
# install.sh DIRECTORY BINARY [HERE]
# install.sh --remove DIRECTORY
#
# Installs sbench below DIRECTORY, a prefix such as /usr/local: the program BINARY and the shim
# beside it, its manual page, completion for bash, zsh and fish, and its documentation with the example packs.
# HERE is the same program for this machine, if BINARY is for another: it prints the page and
# the scripts. Existing files are replaced. --remove removes what an installation consists
# of, and nothing else.
#
# Needs gzip and coreutils; neither Go nor a network. In a git work tree only tracked files
# are installed.
set -euo pipefail

root="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"
readonly root

readonly program=bin/sbench shim=bin/containerd-shim-sbench-v1 page=share/man/man1/sbench.1.gz documentation=share/doc/sbench
declare -Ar completions=(
	[bash]=share/bash-completion/completions/sbench
	[zsh]=share/zsh/site-functions/_sbench
	[fish]=share/fish/vendor_completions.d/sbench.fish
)
# What the pages of docs/ refer to lies where they look for it.
readonly documents=(README.md LICENSE CHANGELOG.md CONTRIBUTING.md docs benchmarks
	examples/agents examples/split scripts/apparmor scripts/base-image.sh scripts/debian.sh)

# tracked prints the files of the documentation, each ended by a NUL.
tracked() {
	cd "$root"
	git ls-files -z -- "${documents[@]}" 2>/dev/null || find "${documents[@]}" -type f -print0
}

remove() {
	local directory="$1" shell
	rm -f -- "$directory/$program" "$directory/$shim" "$directory/$page"
	for shell in "${!completions[@]}"; do rm -f -- "$directory/${completions[$shell]}"; done
	rm -rf -- "${directory:?}/$documentation"
}

main() {
	local directory binary here shell file mode
	if [ "${1:-}" = --remove ] && [ $# = 2 ]; then
		remove "$2"
		return
	fi
	[ $# = 2 ] || [ $# = 3 ] || {
		echo "usage: install.sh DIRECTORY BINARY [HERE] | --remove DIRECTORY" >&2
		exit 2
	}
	umask 022
	directory="$1" binary="$2" here="$(realpath -- "${3:-$2}")"
	remove "$directory"
	install -D -m 755 -- "$binary" "$directory/$program"
	install -D -m 755 -- "$(dirname -- "$binary")/${shim#bin/}" "$directory/$shim"
	mkdir -p -- "$(dirname -- "$directory/$page")"
	"$here" man | gzip -9n >"$directory/$page"
	for shell in "${!completions[@]}"; do
		file="$directory/${completions[$shell]}"
		mkdir -p -- "$(dirname -- "$file")"
		"$here" completion "$shell" >"$file"
	done
	while IFS= read -r -d '' file; do
		mode=644
		[ ! -x "$root/$file" ] || mode=755
		install -D -m "$mode" -- "$root/$file" "$directory/$documentation/$file"
	done < <(tracked)
}

main "$@"
