# The driver: puts one question, a number, to the candidate and reports the digits that the candidate prints.
read -r number
answer=$(timeout 10 run-candidate sh ./double.sh "$number" < /dev/null | head -c 100 | tr -cd '0-9-')
echo "\"$answer\""
