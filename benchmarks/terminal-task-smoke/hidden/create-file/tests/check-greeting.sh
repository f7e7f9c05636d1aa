#!/bin/sh
# Passes when the greeting is exactly what was asked for.
set -eu
test "$(cat greeting.txt)" = "hello, sandbox"
