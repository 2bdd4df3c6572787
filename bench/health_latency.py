#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long /health takes beside large requests.

Asks a running server for /health a hundred times a second over one connection, first alone, then
beside clients that each send one large request after the other, and prints percentiles as JSON:

  bench/health_latency.py --url http://127.0.0.1:30000 --seconds 20
"""

import argparse
import http.client
import json
import threading
import time
import urllib.parse

WORDS = "In a small town by the forest there was a white cat called Rosa. "


def bodies():
    """Name, path and body of each kind of large request."""
    text = WORDS * (10_000_000 // len(WORDS))
    chat = lambda content, tokens: json.dumps(
        {"messages": [{"role": "user", "content": content}], "max_tokens": tokens})
    return [
        ("10 MB to /tokenize", "/tokenize", json.dumps({"prompt": text})),
        ("10 MB chats, refused as too long", "/v1/chat/completions", chat(text, 1)),
        ("chats of 6,000 tokens", "/v1/chat/completions", chat(WORDS * 350, 16)),
    ]


def connect(url):
    address = urllib.parse.urlparse(url)
    return http.client.HTTPConnection(address.hostname, address.port, timeout=120)


def load(url, path, body, stopping, statuses):
    connection = connect(url)
    number = 0
    while not stopping.is_set():
        # Each prompt begins differently: the prefix cache must not make it cheap.
        number += 1
        sent = body.replace("In a small", f"In {threading.get_ident()} {number} small", 1)
        connection.request("POST", path, sent, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        statuses.append(response.status)


def probe(url, seconds):
    connection = connect(url)
    times = []
    end = time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        connection.request("GET", "/health")
        response = connection.getresponse()
        response.read()
        assert response.status == 200, response.status
        times.append((time.perf_counter() - begin) * 1e3)
        time.sleep(max(0, 0.01 - (time.perf_counter() - begin)))
    times.sort()
    at = lambda p: round(times[int(p * (len(times) - 1))], 3)
    return {"probes": len(times), "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": round(times[-1], 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:30000")
    parser.add_argument("--seconds", type=float, default=20, help="of each row")
    parser.add_argument("--clients", type=int, default=4)
    arguments = parser.parse_args()
    rows = [{"beside": "nothing", **probe(arguments.url, arguments.seconds)}]
    for name, path, body in bodies():
        stopping = threading.Event()
        statuses = []
        threads = [threading.Thread(target=load, args=(arguments.url, path, body, stopping, statuses))
                   for _ in range(arguments.clients)]
        for thread in threads:
            thread.start()
        time.sleep(1)
        row = probe(arguments.url, arguments.seconds)
        stopping.set()
        for thread in threads:
            thread.join()
        rows.append({"beside": name, "clients": arguments.clients, "answers": len(statuses),
                     "statuses": sorted(set(statuses)), **row})
    print(json.dumps({"benchmark": "time of /health beside large requests", "rows": rows}, indent=1))


main()
