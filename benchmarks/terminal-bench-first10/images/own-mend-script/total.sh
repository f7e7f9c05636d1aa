#!/bin/bash
sum=0
while read -r n; do sum=$((sum + n)); done < <(tail -n +2 /app/numbers.txt)
echo "$sum"
