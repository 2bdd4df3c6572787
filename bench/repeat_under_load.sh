#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs test programs again and again beside busy loops, which take their cores away at any point: no test's outcome
# may hang on how long something takes.
#
#   bench/repeat_under_load.sh build/release/src/heddle_{device,runner,engine}_test >FILE.json
#
# Prints JSON: machine, commit, and for each program its runs and those that failed, with their cases. Exit code 0
# if all passed. GTEST_FILTER and the like reach the programs.
set -euo pipefail

times=10 loops=4 limit_seconds=900 loop_ids=() failed=0

usage() {
  cat <<TEXT
repeat_under_load.sh [--times N] [--loops M] PROGRAM...
  --times N   runs of each program (default $times)
  --loops M   busy loops beside them (default $loops)
TEXT
}

joined() {  # with ", "
  local all
  printf -v all '%s, ' "$@"
  echo "${all%, }"
}

# repeat PROGRAM: prints its JSON object.
repeat() {
  local program="$1" run code start cases failures=() seconds=()
  for ((run = 1; run <= times; run++)); do
    code=0 start="$(date +%s.%N)"
    timeout "$limit_seconds" "$program" --gtest_color=no >"$work/log" 2>&1 </dev/null || code=$?
    seconds+=("$(awk -v a="$start" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }')")
    ((code)) || continue
    cases="$(sed -n 's/^\[  FAILED  \] \([^ ,]*\).* ms)$/"\1"/p' "$work/log" | paste -sd ',')"
    failures+=("{\"run\": $run, \"exit\": $code, \"cases\": [${cases//,/, }]}")
    printf '%s, run %d: exit %d %s\n' "${program##*/}" "$run" "$code" "$cases" >&2
    [[ -n $cases ]] || tail -n 20 "$work/log" >&2
  done
  ((${#failures[@]} == 0)) || failed=1
  printf '    {"program": "%s", "runs": %d, "failed": %d, "seconds": [%s],\n     "failures": [%s]}' "${program##*/}" \
    "$times" "${#failures[@]}" "$(joined "${seconds[@]}")" "$(joined "${failures[@]}")"
}

while (($#)); do
  case "$1" in
    --times) times="${2:?}" && shift 2 ;;
    --loops) loops="${2:?}" && shift 2 ;;
    -h | --help) usage && exit ;;
    -*) usage >&2 && exit 2 ;;
    *) break ;;
  esac
done
if (($# == 0)); then
  usage >&2
  exit 2
fi

work="$(mktemp -d)"
trap 'kill "${loop_ids[@]}" 2>/dev/null; rm -rf "$work"' EXIT
for ((i = 0; i < loops; i++)); do
  while kill -0 $$; do :; done 2>/dev/null &  # ends with this script, however that ends
  loop_ids+=($!)
done
printf '{"machine": "%s", "cores": %d, "commit": "%s", "busy_loops": %d, "programs": [\n' \
  "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)" \
  "$(git -C "$(dirname "${BASH_SOURCE[0]}")" describe --always --dirty 2>/dev/null || true)" "$loops"
separator=""
for program in "$@"; do
  printf '%s' "$separator"
  repeat "$program"
  separator=$',\n'
done
printf '\n  ]}\n'
exit "$failed"
