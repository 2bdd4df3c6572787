#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles one CUDA file: keep_log.sh COMPILER ARGUMENT... -o OBJECT ... What the compiler prints goes to OBJECT.log,
# where tests/ptxas_notes.sh looks for slow code. The registers and memory of each kernel (ptxas -v) are not shown.
set -uo pipefail

log=/dev/null code=0 previous=""
for argument in "$@"; do
  [[ $previous != -o ]] || log="$argument.log"
  previous="$argument"
done
"$@" >"$log" 2>&1 || code=$?
grep -vE '^ptxas info +: [^(]|^ +[0-9]+ bytes (stack frame|cumulative)' "$log" >&2
exit "$code"
