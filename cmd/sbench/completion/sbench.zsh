#compdef sbench
_sbench() {
  local -a found
  found=("${(@f)$(COMP_LINE="${(j: :)words[1,CURRENT-1]} $PREFIX" sbench 2>/dev/null)}")
  if [[ -n "$found" ]]; then
    compadd -a found
  else
    _files
  fi
}
if [[ "$funcstack[1]" == _sbench ]]; then
  _sbench "$@"
else
  compdef _sbench sbench
fi
