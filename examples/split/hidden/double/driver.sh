# The driver: puts one question, a number, to the candidate and reports the digits that the candidate prints.
read -r number
# A file takes the output: a process that the candidate leaves behind would keep a pipe open.
timeout 10 run-candidate sh ./double.sh "$number" < /dev/null > /tmp/printed 2> /dev/null
answer=$(head -c 100 /tmp/printed | tr -cd '0-9-')
echo "\"$answer\""
