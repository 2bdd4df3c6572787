#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long /health takes beside large requests, and what memory they leave.

Asks a running server for /health a hundred times a second over one connection, first alone, then
beside each kind of large request. Prints percentiles, how the requests ended and the server's
resident memory before and after them as JSON:

  build/release/bin/heddle serve models/heddle-tiny &
  bench/health_latency.py --pid $! --seconds 10

The requests are encoded before the clock runs and sent by another process: one interpreter that
encodes 60 MB cannot ask for /health meanwhile, and would show its own pauses as the server's.
A row ends when its requests were answered, however long that takes: the whole run takes ten minutes.
"""

import argparse
import dataclasses
import http.client
import json
import multiprocessing
import os
import re
import sys
import threading
import time
import urllib.parse

WORDS = "In a small town by the forest there was a white cat called Rosa. "
TOP = 20  # alternatives of a token, the most that the server shows
POOL_BYTES = 1 << 30  # mappings from here on are pools of the memory plan


@dataclasses.dataclass
class Load:
    beside: str
    path: str
    make_body: object
    clients: int = 4
    once: bool = False  # each client sends one request, not one after the other
    bytes_per_second: int = 0  # that the client reads; 0: as fast as it can


def repeated(text, num_bytes):
    return text * (num_bytes // len(text.encode()))


def chat(content, **fields):
    return {"messages": [{"role": "user", "content": content}], **fields}


def logprob_chat(max_tokens, **fields):
    return chat("Tell a story.", max_tokens=max_tokens, ignore_eos=True, logprobs=True, top_logprobs=TOP, **fields)


def loads():
    long_prompt = {"stream": True, "temperature": 0}
    return [
        Load("10 MB to /tokenize", "/tokenize", lambda: {"prompt": repeated(WORDS, 10_000_000)}),
        Load("60 MB to /tokenize", "/tokenize", lambda: {"prompt": repeated(WORDS, 60_000_000)}, clients=1),
        Load("10 MB chats, refused as too long", "/v1/chat/completions",
             lambda: chat(repeated(WORDS, 10_000_000), max_tokens=1)),
        Load("14 MB chats of 300,000 messages", "/v1/chat/completions",
             lambda: {"messages": [{"role": "user", "content": "Hello there."}] * 300_000, "max_tokens": 1}),
        Load("chats of 6,000 tokens", "/v1/chat/completions", lambda: chat(WORDS * 350, max_tokens=16)),
        Load("240 kB of a letter with marks U+0301 U+0316 to /tokenize", "/tokenize",
             lambda: {"prompt": "a" + repeated("\u0301\u0316", 240_000)}),
        Load("240 kB of U+0F73 to /tokenize", "/tokenize", lambda: {"prompt": repeated("\u0f73", 240_000)}),
        Load(f"a chat with n 64, max_tokens 3000, top_logprobs {TOP}", "/v1/chat/completions",
             lambda: logprob_chat(3000, n=64), clients=1, once=True),
        Load(f"streams of 2,000 tokens with top_logprobs {TOP}", "/v1/chat/completions",
             lambda: logprob_chat(2000, stream=True)),
        Load("the same with stream_interval 1,000,000", "/v1/chat/completions",
             lambda: logprob_chat(2000, stream=True, stream_interval=1_000_000)),
        Load(f"cumulative streams of /generate, 3,000 tokens with {TOP} alternatives", "/generate",
             lambda: {"text": "Tell a story.", "stream": True, "return_logprob": True, "top_logprobs_num": TOP,
                      "sampling_params": {"max_new_tokens": 3000, "ignore_eos": True}}, clients=2),
        Load(f"streams that begin with the logprobs of 8,000 prompt tokens, {TOP} alternatives", "/v1/completions",
             lambda: {"prompt": [5 + i % 1000 for i in range(8000)], "echo": True, "logprobs": TOP, "max_tokens": 16,
                      **long_prompt}, clients=2),
        Load("cumulative streams of /generate that repeat them", "/generate",
             lambda: {"input_ids": [5 + i % 1000 for i in range(8000)], "return_logprob": True, "logprob_start_len": 0,
                      "top_logprobs_num": TOP, "stream": True, "sampling_params": {"max_new_tokens": 64}}, clients=2),
        Load("an answer of 8 times 3,000 tokens with logprobs, read at 400 kB/s", "/v1/chat/completions",
             lambda: logprob_chat(3000, n=8), clients=1, once=True, bytes_per_second=400_000),
    ]


def connect(url):
    address = urllib.parse.urlparse(url)
    return http.client.HTTPConnection(address.hostname, address.port, timeout=1800)


def read_answer(response, bytes_per_second):
    """The bytes of the answer, its first and last ones, and whether it is whole."""
    size, begin, end = 0, b"", b""
    try:
        while piece := response.read1(40_000 if bytes_per_second else 1 << 20):
            size += len(piece)
            begin = begin or piece[:400]
            end = (end + piece[-100:])[-100:]
            if bytes_per_second:
                time.sleep(len(piece) / bytes_per_second)
    except (http.client.HTTPException, OSError):
        return size, begin, False
    is_stream = response.headers.get("Content-Type", "").startswith("text/event-stream")
    whole = b"data: [DONE]" in end if is_stream else response.length == 0 or response.isclosed()
    response.close()
    return size, begin, whole


def send_all(url, load, body, end, answers):
    connection = connect(url)
    number = 0
    while number == 0 or (not load.once and time.monotonic() < end):
        # Each prompt begins differently: the prefix cache must not make it cheap.
        number += 1
        sent = body.replace(b"In a small", b"In %d %d small" % (threading.get_ident(), number), 1)
        connection.request("POST", load.path, sent, {"Content-Type": "application/json"})
        response = connection.getresponse()
        size, begin, whole = read_answer(response, load.bytes_per_second)
        error = "" if response.status == 200 else begin.decode(errors="replace")
        answers.append((response.status, whole, size, error))
        if not whole:
            connection.close()


def load_process(url, index, seconds, ready, begin, result):
    load = loads()[index]
    body = json.dumps(load.make_body(), ensure_ascii=False).encode()
    ready.set()
    begin.wait()
    answers = []
    started = time.monotonic()
    threads = [threading.Thread(target=send_all, args=(url, load, body, started + seconds, answers))
               for _ in range(load.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    result.send((len(body), time.monotonic() - started, answers))


def probe(url, goes_on):
    connection = connect(url)
    times = []
    while goes_on():
        begin = time.perf_counter()
        connection.request("GET", "/health")
        response = connection.getresponse()
        response.read()
        assert response.status == 200, response.status
        times.append((time.perf_counter() - begin) * 1e3)
        time.sleep(max(0, 0.01 - (time.perf_counter() - begin)))
    times.sort()
    at = lambda p: round(times[int(p * (len(times) - 1))], 3)
    return {"probes": len(times), "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": round(times[-1], 3)}


def resident_mib(pid):
    """Of the server: what the pools have committed, which stays as the prefix cache, and the rest."""
    resident_kib = {"pools": 0, "rest": 0}
    kind = "rest"
    with open(f"/proc/{pid}/smaps") as mappings:
        for line in mappings:
            if bounds := re.match("([0-9a-f]+)-([0-9a-f]+) ", line):
                size = int(bounds[2], 16) - int(bounds[1], 16)
                kind = "pools" if size >= POOL_BYTES else "rest"
            elif line.startswith("Rss:"):
                resident_kib[kind] += int(line.split()[1])
    return {kind: round(kib / 1024) for kind, kib in resident_kib.items()}


def run_row(arguments, index, load):
    ready, begin = multiprocessing.Event(), multiprocessing.Event()
    result, sent = multiprocessing.Pipe(duplex=False)
    sender = multiprocessing.Process(target=load_process,
                                     args=(arguments.url, index, arguments.seconds, ready, begin, sent))
    sender.start()
    ready.wait()
    before = resident_mib(arguments.pid) if arguments.pid else None
    begin.set()
    times = probe(arguments.url, lambda: sender.is_alive() and not result.poll())
    body_bytes, seconds, answers = result.recv()
    sender.join()
    time.sleep(1)  # the server drops what it has answered
    statuses = sorted({f"{status}, {'whole' if whole else 'cut off'}" for status, whole, _, _ in answers})
    row = {"beside": load.beside, "clients": load.clients, "body_bytes": body_bytes, "seconds": round(seconds, 1),
           "answers": len(answers), "ended": statuses,
           "answer_bytes": max(size for _, _, size, _ in answers), **times}
    if arguments.pid:
        row.update({"resident_mib_before": before, "resident_mib_after": resident_mib(arguments.pid)})
    errors = {error for _, _, _, error in answers if error}
    if errors:
        row["error"] = re.search(r'"message": ?"([^"]*)', min(errors))[1]
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:30000")
    parser.add_argument("--pid", type=int, help="of the server, for its memory")
    parser.add_argument("--seconds", type=float, default=10, help="of each row, at least")
    parser.add_argument("--only", default="", help="rows whose name has this text")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    rows = [{"beside": "nothing", **probe(arguments.url, lambda: time.monotonic() < end)}]
    for index, load in enumerate(loads()):
        if arguments.only in load.beside:
            rows.append(run_row(arguments, index, load))
            print(rows[-1], file=sys.stderr)
    print(json.dumps({"benchmark": "time of /health beside large requests, and memory after them", "rows": rows},
                     indent=1))


if __name__ == "__main__":
    main()
