# The oracle: asks the questions and judges the answers, in a sandbox where no candidate ever is.
read -r start # {"questions":5,"seed":"…"}
left=${start#*'"questions":'}
left=${left%%[!0-9]*}
seed=${start#*'"seed":"'}
seed=${seed%%\"*}
numbers=
while [ "$left" -gt 0 ]; do
	number=$(echo "$seed $left" | cksum | cut -d ' ' -f 1)
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
