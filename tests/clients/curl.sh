#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The server as curl sees it.
set -euo pipefail

address="${1:-http://127.0.0.1:30000}"

# ask STATUS PATH [curl's arguments]: prints the body; ends the program unless the status is this one.
ask() {
  local wanted="$1" path="$2" answer
  shift 2
  answer="$(curl -sS --max-time 60 -w '\n%{http_code}' "$@" "$address$path")"
  [[ ${answer##*$'\n'} == "$wanted" ]] || {
    printf '%s answers %s instead of %s\n' "$path" "$answer" "$wanted" >&2
    exit 1
  }
  printf '%s\n' "${answer%$'\n'*}"
}

# expect PATTERN: fails unless standard input has it; reads all of that, as its writer expects.
expect() { grep -- "$1" >/dev/null || { printf 'no %s\n' "$1" >&2; exit 1; }; }

json=(-H 'Content-Type: application/json')
chat='{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4'
ask 200 /health | expect '"ok"'
ask 200 /v1/models | expect heddle-tiny
ask 200 /v1/chat/completions "${json[@]}" -d "$chat}" | expect '"chat.completion"'
ask 200 /v1/chat/completions "${json[@]}" -N -d "$chat, \"stream\": true}" | expect 'data: \[DONE\]'
ask 200 /generate -d '{"text": "Once", "sampling_params": {"max_new_tokens": 4}}' | expect output_ids
ask 200 /invocations "${json[@]}" -d "$chat}" | expect '"chat.completion"'
ask 200 /metrics | expect heddle_
ask 400 /v1/chat/completions "${json[@]}" -d '{' | expect invalid_json
ask 404 /nothing | expect not_found
ask 405 /v1/chat/completions | expect method_not_allowed
ask 501 /v1/embeddings "${json[@]}" -d '{}' | expect not_supported
