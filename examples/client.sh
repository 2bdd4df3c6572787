#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Asks a running `heddle serve` with curl: one answer, then the same one as a stream of events.
#
#   examples/client.sh "Tell me a story about a cat." [http://127.0.0.1:30000]
set -eu
question="${1:?usage: client.sh QUESTION [URL]}"
url="${2:-http://127.0.0.1:30000}"

# The question goes into JSON text: a backslash and a quote are escaped.
escaped="$(printf '%s' "$question" | sed 's/\\/\\\\/g; s/"/\\"/g')"
ask() {
  curl --silent --show-error --fail-with-body --no-buffer "$url/v1/chat/completions" \
    --header 'Content-Type: application/json' \
    --data "{\"messages\": [{\"role\": \"user\", \"content\": \"$escaped\"}],
             \"temperature\": 0, \"max_tokens\": 32, \"stream\": $1}"
}

ask false
echo
ask true
