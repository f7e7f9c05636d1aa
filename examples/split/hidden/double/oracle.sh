# The oracle: asks the questions and judges the answers, in a sandbox where no candidate ever is.
read -r start # {"questions":5,"seed":"…"}
left=${start#*'"questions":'}
left=${left%%[!0-9]*}
numbers=
while [ "$left" -gt 0 ]; do
	number=$(od -An -N 2 -t u2 /dev/urandom | tr -d ' ')
	numbers="$numbers $number"
	echo "$number"
	left=$((left - 1))
done
passed=true
for number in $numbers; do
	read -r evidence # {"index":0,…,"answer":"84"}: the answer is the last field
	case $evidence in
	*",\"answer\":\"$((2 * number))\"}") ;;
	*) passed=false ;;
	esac
done
echo "{\"passed\": $passed}"
