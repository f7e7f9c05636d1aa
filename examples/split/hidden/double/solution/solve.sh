echo 'echo $((2 * $1))' > double.sh
