#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a chat waits for its first token beside requests that bring tools never seen before.

Asks a running server for streamed chats of four tokens, one after the other, first alone, then while eight
other clients send requests with sets of `strict` tools that no request had before, once more with the same
sets, whose forms are known, and with new sets that are not `strict`: prompts as long, without forms. Prints the
times to the first token, of the chats and of those requests, as JSON. A model of random weights with a real
vocabulary serves for it:

  bench/new_tools.py --write-model /tmp/qwen3-dummy --tokenizer DIR/data/tokenizers/qwen3
  build/release/bin/heddle serve /tmp/qwen3-dummy --load-format dummy --tool-call-parser qwen &
  bench/new_tools.py --rounds 20
"""

import argparse
import http.client
import json
import multiprocessing
import pathlib
import shutil
import statistics
import time

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "eos_token_id": 151645,
    "bos_token_id": 151643,
}
CLIENTS = 8


def write_model(folder, tokenizer):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    for file in tokenizer.iterdir():
        shutil.copy(file, folder)


def tools(number, count, strict=True):
    """A set of tools as coding agents bring them, whose names and properties no other set has."""
    name = str(number)[::-1]  # the first letters tell sets apart
    return [
        {
            "type": "function",
            "function": {
                "name": f"{name}_edit_{i}",
                "description": "Changes a file.",
                "strict": strict,
                "parameters": {
                    "type": "object",
                    "properties": {
                        f"path_{name}": {"type": "string", "minLength": 1, "maxLength": 255},
                        "edits": {
                            "type": "array",
                            "maxItems": 20,
                            "items": {
                                "type": "object",
                                "properties": {
                                    "old": {"type": "string"},
                                    "new": {"type": "string"},
                                    "mode": {"enum": ["replace", "insert", "delete"]},
                                },
                                "required": ["old", "new", "mode"],
                                "additionalProperties": False,
                            },
                        },
                        "line": {"type": ["integer", "null"], "minimum": 1},
                    },
                    "required": [f"path_{name}", "edits", "line"],
                    "additionalProperties": False,
                },
            },
        }
        for i in range(count)
    ]


def connect(host, port):
    return http.client.HTTPConnection(host, port, timeout=600)


def ask_alone(host, port, body):
    return first_token_seconds(connect(host, port), body)


def first_token_seconds(connection, body):
    began = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(response.read().decode())
    first = None
    for line in response:
        if first is None and line.startswith(b"data:"):
            first = time.perf_counter() - began
    return first


def chat(**fields):
    return {
        "messages": [{"role": "user", "content": f"Hello {time.monotonic_ns()}"}],
        "max_tokens": 4,
        "stream": True,
        **fields,
    }


def milliseconds(seconds):
    seconds = sorted(seconds)
    return {
        "median": round(1e3 * statistics.median(seconds), 1),
        "p99": round(1e3 * seconds[(99 * len(seconds)) // 100], 1),
        "worst": round(1e3 * seconds[-1], 1),
        "count": len(seconds),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--rounds", type=int, default=20, help="in each, eight requests with new sets of tools")
    parser.add_argument("--tools", type=int, default=8, help="tools in a set")
    parser.add_argument("--write-model", type=pathlib.Path, help="folder for a model's config and tokenizer")
    parser.add_argument("--tokenizer", type=pathlib.Path, help="folder with a tokenizer for --write-model")
    arguments = parser.parse_args()
    if arguments.write_model:
        write_model(arguments.write_model, arguments.tokenizer)
        return

    address = (arguments.host, arguments.port)
    numbers = iter(range(time.time_ns() % 10**9, 10**12))
    own = connect(*address)
    # The vocabulary is read with the first form of all.
    first_token_seconds(own, chat(tools=tools(next(numbers), 1)))
    first_token_seconds(own, chat())
    alone = [first_token_seconds(own, chat()) for _ in range(5 * arguments.rounds)]

    beside = {"new": [], "known": [], "without_forms": []}
    with_tools = {kind: [] for kind in beside}
    # Processes: threads of one would wait for each other, and the chat for them.
    with multiprocessing.Pool(CLIENTS) as clients:
        for _ in range(arguments.rounds):
            new = [tools(next(numbers), arguments.tools) for _ in range(CLIENTS)]
            free = [tools(next(numbers), arguments.tools, strict=False) for _ in range(CLIENTS)]
            for kind, sets in (("new", new), ("known", new), ("without_forms", free)):
                bodies = [(*address, chat(tools=own_set)) for own_set in sets]
                answers = clients.starmap_async(ask_alone, bodies, chunksize=1)
                while not answers.ready():
                    beside[kind].append(first_token_seconds(own, chat()))
                with_tools[kind] += answers.get()
    print(
        json.dumps(
            {
                "tools_in_a_set": arguments.tools,
                "first_token_alone_ms": milliseconds(alone),
                "first_token_beside_new_tools_ms": milliseconds(beside["new"]),
                "first_token_beside_known_tools_ms": milliseconds(beside["known"]),
                "first_token_beside_new_tools_without_forms_ms": milliseconds(beside["without_forms"]),
                "first_token_with_new_tools_ms": milliseconds(with_tools["new"]),
                "first_token_with_known_tools_ms": milliseconds(with_tools["known"]),
                "first_token_with_new_tools_without_forms_ms": milliseconds(with_tools["without_forms"]),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
