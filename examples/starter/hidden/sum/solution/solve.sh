awk "{ n += \$1 } END { print n }" numbers.txt > sum.txt
