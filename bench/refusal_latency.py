#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long requests take that are refused before anything is tokenized.

Sends requests that have brought other servers down to a running server, each many times over one
connection after the other, and prints percentiles as JSON. Every answer must be an error of the
client (4xx) or 501, and each of them should be there within 50 ms. With the server's process id the CPU
time that it spends on each request is printed, too, which other work on the machine changes little:

  bench/refusal_latency.py --url http://127.0.0.1:30000 --pid "$(pgrep -x heddle)"
"""

import argparse
import json
import os
import socket
import sys
import time
import urllib.parse

CHAT = "/v1/chat/completions"
MIB = 1 << 20


def chat(**fields):
    return CHAT, {"messages": [{"role": "user", "content": "Hi"}], **fields}


def tool(parameters, **fields):
    function = {"name": "f", "strict": True, "parameters": parameters}
    return chat(tools=[{"type": "function", "function": function}], **fields)


def nested(levels):
    schema = {}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def schema_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


def calls():
    """Name, path and body, an object or bytes, of each request."""
    yield "field of a wrong type", *chat(temperature="hot")
    yield "top_logprobs 1000000", *chat(logprobs=True, top_logprobs=1000000)
    yield "temperature 1e308 and infinite", *chat(temperature=1e308, top_p=1e308)
    yield "n of 2^62", *chat(n=1 << 62)
    yield "logit_bias of an unknown id", *chat(logit_bias={"99999999": 1})
    yield "10,000 stop texts", *chat(stop=[f"stop {i}" for i in range(10000)])
    yield "100,000 keys", CHAT, {f"key {i}": i for i in range(100000)}
    yield "role unknown", CHAT, {"messages": [{"role": "x" * 1000, "content": "a"}]}
    yield "arguments that are no object", CHAT, {"messages": [
        {"role": "assistant", "tool_calls": [{"type": "function", "id": "a", "function": {
            "name": "f", "arguments": "[" * 10000}}]}]}
    yield "schema of 1,000 levels", *chat(response_format=schema_format(nested(1000)))
    yield "schema of 60 levels, one not served", *chat(
        response_format=schema_format({"allOf": [nested(58), {"not": {}}]}))
    yield "schema that refers to itself", *chat(response_format=schema_format({"$ref": "#"}))
    yield "regex that needs too many states", *chat(regex="((a{1,1000}){1,1000}){1,1000}UNIQUE")
    yield "regex with 5,000 groups", *chat(regex="(" * 5000 + "a" + ")" * 5000)
    yield "regex that does not end", *chat(regex="[a" * 10000)
    yield "grammar without an end", *chat(ebnf="root ::= root")
    yield "tool with a wrong pattern", *tool({"properties": {"a": {"pattern": "["}}})
    yield "forced call without tools", *chat(tool_choice="required")
    yield "unpaired surrogate", CHAT, b'{"messages": [{"role": "user", "content": "\\ud800"}]}'
    yield "100,000 brackets", CHAT, b'{"a": ' + b"[" * 100000 + b"]" * 100000 + b"}"
    yield "1 MiB of brackets", CHAT, b"[" * MIB
    yield "1 MiB of digits", CHAT, b'{"n": ' + b"9" * MIB + b"}"
    yield "1 MiB of one letter, no JSON", CHAT, b"a" * MIB
    yield "1 MiB of blanks", CHAT, b" " * MIB
    yield "pickle", "/generate", b"\x80\x04\x95" + b"." * 1000
    yield "image", CHAT, {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "http://169.254.169.254/" + "a" * 10000}}]}]}
    yield "ids out of range", "/generate", {"input_ids": [2**31 - 1] * 1000}
    yield "wrong session", "/generate", {"text": "a", "session_params": {"id": "x"}}
    yield "batch of an unknown file", "/v1/batches", {
        "input_file_id": "x", "endpoint": CHAT, "completion_window": "24h"}


def heads():
    """Name and bytes of requests that are refused by their head."""
    yield "unknown path", b"GET /" + b"a" * 8000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"
    yield "wrong method", b"DELETE /v1/models HTTP/1.1\r\nHost: a\r\n\r\n"
    yield "route that is not served", b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\n" \
        b"Content-Type: application/json\r\nContent-Length: 0\r\n\r\n"
    yield "form instead of JSON", b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n" \
        b"Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}"
    yield "body of 1 TB", b"POST /generate HTTP/1.1\r\nHost: a\r\n" \
        b"Content-Length: 1099511627776\r\n\r\n"
    yield "length and chunks", b"POST /generate HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n" \
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    yield "header of 80 KB", b"GET /health HTTP/1.1\r\nHost: a\r\nx: " + b"a" * 80000 + b"\r\n\r\n"
    yield "60,000 headers", b"GET /health HTTP/1.1\r\n" + b"a: b\r\n" * 60000 + b"\r\n"
    yield "NUL in a header", b"GET /health HTTP/1.1\r\nHost: a\0b\r\n\r\n"
    yield "no HTTP", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\r\n\r\n"


def as_request(path, body):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = (f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n")
    return head.encode() + data


def cpu_ms(pid):
    """CPU time of all threads of a process so far; 0 without one."""
    tasks = f"/proc/{pid}/task"
    if pid == 0:
        return 0
    return sum(int(open(f"{tasks}/{task}/schedstat").read().split()[0])
               for task in os.listdir(tasks)) / 1e6


def ask(address, request, number):
    """Status, and milliseconds from connecting to the answer's head."""
    request = request.replace(b"UNIQUE", b"%06d" % number)  # forms are kept, also refused ones
    begin = time.perf_counter()
    with socket.create_connection(address, timeout=60) as connection:
        try:
            connection.sendall(request)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before it was sent
        answer = b""
        try:
            while b"\r\n\r\n" not in answer:
                received = connection.recv(65536)
                if not received:
                    break
                answer += received
        except ConnectionResetError:
            pass
        milliseconds = (time.perf_counter() - begin) * 1e3
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/") else 0, milliseconds


def main():
    sys.setrecursionlimit(10000)  # to write a schema of 1,000 levels
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:30000")
    parser.add_argument("--times", type=int, default=50, help="that each request is sent")
    parser.add_argument("--pid", type=int, default=0, help="of the server, on this machine")
    parser.add_argument("--limit-ms", type=float, default=50, help="that 99 of 100 should keep")
    arguments = parser.parse_args()
    address = urllib.parse.urlparse(arguments.url)
    place = (address.hostname, address.port)
    rows = []
    requests = [(name, as_request(path, body)) for name, path, body in calls()]
    for name, request in [*requests, *heads()]:
        before = cpu_ms(arguments.pid)
        answers = [ask(place, request, number) for number in range(arguments.times)]
        used = (cpu_ms(arguments.pid) - before) / arguments.times
        times = sorted(milliseconds for _, milliseconds in answers)
        at = lambda p: round(times[int(p * (len(times) - 1))], 2)
        statuses = sorted({status for status, _ in answers})
        row = {"request": name, "bytes": len(request), "statuses": statuses,
               "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1)}
        rows.append({**row, "cpu_ms": round(used, 3)} if arguments.pid else row)
    wrong = [row["request"] for row in rows
             if not all(400 <= status < 500 or status == 501 for status in row["statuses"])]
    slow = [row["request"] for row in rows if row["p99_ms"] > arguments.limit_ms]
    head = {"benchmark": "time of requests that are refused untokenized", "times": arguments.times,
            "not_refused": wrong, "slow": slow}
    print(json.dumps(head)[:-1] + ', "rows": [\n' +
          ",\n".join(json.dumps(row) for row in rows) + "\n]}")


main()
