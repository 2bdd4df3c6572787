#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks a running `heddle serve` and prints the answer as it comes; needs nothing but Python.

    examples/client.py "Tell me a story about a cat." [http://127.0.0.1:30000]

The same with OpenAI's package:
    client = openai.OpenAI(base_url="http://127.0.0.1:30000/v1", api_key="none")
    client.chat.completions.create(model="default", messages=[...], stream=True)
"""
import json
import sys
import urllib.request


def stream_chat(url, question):
    """Yields the pieces of the answer's text."""
    body = {
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": 32,
        "stream": True,
    }
    request = urllib.request.Request(
        url + "/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as response:
        for line in response:  # server-sent events: "data: {...}", at last "data: [DONE]"
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            event = json.loads(line[len(b"data: "):])
            if "error" in event:
                raise RuntimeError(event["error"]["message"])
            for choice in event["choices"]:
                yield choice["delta"].get("content") or ""


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: client.py QUESTION [URL]")
    url = sys.argv[2] if len(sys.argv) > 2 else "http://127.0.0.1:30000"
    for piece in stream_chat(url, sys.argv[1]):
        print(piece, end="", flush=True)
    print()


if __name__ == "__main__":
    main()
