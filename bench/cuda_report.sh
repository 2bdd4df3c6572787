#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs what needs a GPU and writes it down: the CUDA suites, compute-sanitizer, golden models, recorded answers,
# benchmarks, a lost GPU. Lies in the archive of `./run pack` beside the programs and needs no compiler.
set -uo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
readonly root
readonly tiny="$root/repository/models/heddle-tiny"
readonly recorded="$root/repository/tests/golden/heddle_tiny"
output="$PWD/cuda-report" stages=() entries=() failed=0

usage() {
  cat <<'TEXT'
cuda_report.sh [--output FOLDER] [--model FOLDER] STAGE...
  suites      the GoogleTest suites Cuda/* of all programs
  sanitizer   compute-sanitizer over the cases called Smallest, which reach every kernel: memcheck, racecheck,
              initcheck, synccheck
  verify      golden models in exact mode and fp32, and in bf16 beside Transformers and the CPU in bf16
  eval        the recorded answers of heddle-tiny
  bench       single ops, then heddle-tiny and every shape in shapes/, prefill and decode
  lost        a server whose GPU is lost under load: requests fail, /health says so, the process ends (needs python3)
  all         all of them
Writes FOLDER/STAGE.json (default ./cuda-report) with GPU, driver, commit, commands and failures, and logs beside
it. Each stage takes at most 8 minutes on an H200. Exit code 0 if everything passed.
--model: the folder of heddle-tiny, where the archive does not lie in the repository.
TEXT
}

quoted() {  # as a JSON string
  local text="$1"
  text="${text//\\/\\\\}" text="${text//\"/\\\"}" text="${text//$'\n'/\\n}" text="${text//$'\t'/ }"
  printf '"%s"' "$text"
}

gpu_field() { nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null | head -n 1; }

# entry NAME COMMAND...: runs it, keeps its output, and notes exit code, seconds and the fields that the function
# `fields_of` of the stage prints from the log.
entry() {
  local name="$1" start code=0 log
  shift
  log="$output/$stage-$name.log"
  start="$(date +%s.%N)"
  "$@" >"$log" 2>&1 </dev/null || code=$?
  local seconds
  seconds="$(awk -v a="$start" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }')"
  ((code == 0)) || failed=$((failed + 1))
  entries+=("{\"name\": $(quoted "$name"), \"command\": $(quoted "${*//"$root/"/}"), \"exit\": $code,
     \"seconds\": $seconds$(fields_of "$log" "$code")}")
  printf '%-10s %-40s exit %d  %s s\n' "$stage" "$name" "$code" "$seconds"
  ((code == 0)) || grep -E '^\[  FAILED|FAILED|^error|ERROR SUMMARY' "$log" | head -n 12
}

json_list() {  # of the lines of standard input
  local first=yes line
  printf '['
  while IFS= read -r line; do
    [[ $first == yes ]] || printf ', '
    quoted "$line"
    first=no
  done
  printf ']'
}

test_fields() {
  printf ', "passed": %d, "skipped": %d' "$(grep -c '^\[       OK \] ' "$1")" \
    "$(grep -c '^\[  SKIPPED \] .*ms)$' "$1")"
  printf ', "failures": %s' "$(sed -n 's/^\[  FAILED  \] \(.*\) (.* ms)$/\1/p' "$1" | json_list)"
  printf ', "suites": %s' \
    "$(sed -n 's/^\[       OK \] \([^.]*\)\..*/\1/p' "$1" | sort -u | json_list)"
}

# The report that the program printed as JSON, or the end of its log.
report_fields() {
  local json
  json="$(sed -n '/^[[{]/,$p' "$1")"
  if [[ -n $json && $2 == 0 ]]; then printf ', "report": %s' "$json"; else
    printf ', "log": %s' "$(quoted "$(tail -n 30 "$1")")"
  fi
}

run_suites() {
  fields_of() { test_fields "$1"; }
  local program
  for program in "$root"/heddle_*_test; do
    entry "$(basename "$program")" "$program" --gtest_filter='Cuda/*'
  done
}

# Initcheck looks at what kernels read, small copies among them.
run_sanitizer() {
  fields_of() { printf ', "summary": %s' "$(quoted "$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$1")")"; }
  local tool program
  for tool in memcheck racecheck initcheck synccheck; do
    for program in "$root"/heddle_{device,ops,checkpoint,graph,sampling,runner}_test; do
      entry "$tool-$(basename "$program")" compute-sanitizer --tool "$tool" --error-exitcode 9 \
        "$program" --gtest_filter="Cuda/*Smallest*" --gtest_brief=1
    done
  done
}

# Of all feedings of a model: how many there were and passed, and the largest errors.
verify_fields() {
  awk -F '[:,]' '
    /"fed"/ { feedings++ }
    /^      "passed": true/ { passed++ }
    /"logits_error"/ && $2 + 0 > logits { logits = $2 + 0 }
    /"hidden_error"/ && $2 + 0 > hidden { hidden = $2 + 0 }
    /"greedy_wrong"/ { wrong += $2 }
    END {
      printf ", \"feedings\": %d, \"passed\": %d, \"largest_logits_error\": %.3g, ", feedings, passed, logits
      printf "\"largest_hidden_error\": %.3g, \"greedy_wrong\": %d", hidden, wrong
    }' "$1"
}

# errors_in_bf16 FOLDER DEVICE: for each way of feeding, over the rows of all cases: the root of the mean square error of
# a row, and the largest error. From the cache some ways have few rows: they are taken together.
errors_in_bf16() {
  # The exit code says that bounds of fp32 do not hold.
  { "$root/heddle" verify "$1" --device "$2" --dtype bfloat16 --json || true; } |
    awk -F '[:,] *' '
      /"fed"/ { fed = $2 ~ /cached/ ? "\"from the cache\"" : $2 }
      /"recorded_rows"/ { rows = $2 }
      /"logits_error"/ && $2 > largest[fed] { largest[fed] = $2 }
      /"mean_logits_error"/ { num[fed] += rows; squares[fed] += rows * $2 * $2 }
      END { for (fed in num) if (num[fed] > 0) print fed "\t" sqrt(squares[fed] / num[fed]) "\t" largest[fed] }'
}

# verify_beside_reference FOLDER MEAN: in bfloat16 rounding alone costs more than the bounds of fp32, how much depends on
# the model. However it is fed, its mean error is at most 1.5 times the larger of two: MEAN, that of Hugging Face
# Transformers in bfloat16, and the CPU's of the same feeding, which rounds the weights alone.
verify_beside_reference() {
  errors_in_bf16 "$1" cpu >"$output/errors-cpu"
  errors_in_bf16 "$1" cuda |
    awk -F '\t' -v reference="$2" '
      NR == FNR { cpu[$1] = $2; next }
      {
        n++
        allowed = cpu[$1] > reference ? cpu[$1] : reference
        if ($2 / allowed > most) most = $2 / allowed
        if ($3 > largest) largest = $3
        if ($1 == "\"whole\"") whole = $2 / reference
      }
      END {
        printf "{\"ways_to_feed\": %d, \"whole_beside_transformers\": %.3f, \"most_beside_allowed\": %.3f, ", n, whole, most
        printf "\"largest_error\": %.4g}\n", largest
        exit !(n > 0 && most <= 1.5)
      }' "$output/errors-cpu" -
}

verify_fp32() {
  fields_of() { verify_fields "$1"; }
  local model mode
  for model in "$root"/golden/*/; do
    model="$(basename "$model")"
    for mode in "--exact" "--dtype float32"; do
      # shellcheck disable=SC2086  # the mode is several words
      entry "$model${mode//[^a-z0-9]/-}" "$root/heddle" verify "$root/golden/$model" --device cuda $mode --json
    done
  done
  entry heddle-tiny-exact "$root/heddle" verify "$tiny" "$recorded/logits.safetensors" --device cuda --exact --json
}

verify_bf16() {
  fields_of() { report_fields "$1" 0; }
  local model mean
  while IFS=$'\t' read -r model mean _; do
    [[ $model != '#'* && -d $root/golden/$model ]] || continue
    entry "$model-bfloat16" verify_beside_reference "$root/golden/$model" "$mean"
  done <"$root/bf16_reference.tsv"
}

run_verify() {
  verify_fp32
  verify_bf16
}

run_eval() {
  fields_of() { report_fields "$@"; }
  local sets="$root/golden-tiny" num_math=400
  if [[ ! -d $sets ]]; then
    sets="$recorded" num_math=30
    printf 'the archive was packed without HEDDLE_SHARED: only the questions in the repository are asked\n'
  fi
  entry heddle-tiny-exact "$root/heddle" eval "$tiny" "$sets"/{math,recall,skill,story}.jsonl --device cuda \
    --exact --expect-reference --json
  entry heddle-tiny-bf16 "$root/heddle" eval "$tiny" "$sets/math.jsonl" --device cuda --min-correct "$num_math" --json
}

run_bench() {
  fields_of() { report_fields "$@"; }
  local shape
  entry ops "$root/heddle" bench ops --device cuda --json
  entry heddle-tiny "$root/heddle" bench offline "$tiny" --device cuda --json
  for shape in "$root"/shapes/*/; do
    entry "$(basename "$shape")" "$root/heddle" bench offline "$shape" --load-format dummy --device cuda \
      --dtype bfloat16 --prefill 512,8192 --chunk 8192 --decode-batch 1,8,64,256 --json
  done
}

run_lost() {
  fields_of() { report_fields "$@"; }
  entry heddle-tiny python3 "$root/lost_device.py" "$tiny" --heddle "$root/heddle" --library "$root/lose_device.so"
}

while (($#)); do
  case "$1" in
    --output) output="$2"; shift ;;
    --model) ln -sfn "$(cd "$2/../.." && pwd)" "$root/repository"; shift ;;
    -h | --help) usage; exit 0 ;;
    all) stages+=(suites sanitizer verify eval bench lost) ;;
    suites | sanitizer | verify | eval | bench | lost) stages+=("$1") ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done
((${#stages[@]})) || { usage >&2; exit 2; }
[[ -e $root/repository ]] || ln -sfn "$(git -C "$PWD" rev-parse --show-toplevel 2>/dev/null || echo "$PWD")" "$root/repository"
[[ -e $tiny/model-00001-of-00002.safetensors ]] || tar -xf "$tiny-weights.tar.xz" -C "$tiny"
export HEDDLE_ROOT="$root/repository" HEDDLE_SHARED="$root"  # which has the goldens
mkdir -p "$output"

for stage in "${stages[@]}"; do
  entries=()
  "run_$stage"
  {
    printf '{"stage": "%s", "gpu": %s, "driver": %s, "memory": %s, "commit": %s, "date": "%s",\n "entries": [\n    ' \
      "$stage" "$(quoted "$(gpu_field name)")" "$(quoted "$(gpu_field driver_version)")" \
      "$(quoted "$(gpu_field memory.total)")" "$(quoted "$(cat "$root/commit" 2>/dev/null)")" "$(date -u +%F)"
    printf '%s' "${entries[0]:-}"
    ((${#entries[@]} < 2)) || printf ',\n    %s' "${entries[@]:1}"
    printf '\n]}\n'
  } >"$output/$stage.json"
done
printf '%s failed\n' "$failed"
((failed == 0))
