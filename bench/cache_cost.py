#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of the prefix cache when nothing repeats.

Two servers of one model, the second with --disable-radix-cache, answer the same unique prompts at
the same time but never run at the same time: one is stopped while the other has its slice, so that
other load on the machine meets both. A pair is compared by the time each server ran.

How memory happens to be laid out makes a server up to two percent faster or slower from its start
to its end. Both are therefore started anew many times; the standard error is that of these starts.
With --same both servers run without the cache: the difference must then be none.

The arguments after -- are options of both servers:

  bench/cache_cost.py models/heddle-tiny --output-tokens 801 --starts 24 -- --memory-fraction 0.005
"""

import argparse
import http.client
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time

SLICE_SECONDS = 0.01
WARM_UP_TOKENS = 2048
WITHOUT_CACHE = ["--disable-radix-cache"]


class Server:
    def __init__(self, arguments, port, extra):
        self.process = subprocess.Popen(
            [arguments.heddle, "serve", arguments.model, "--port", str(port), "--log-level", "error"]
            + arguments.serve + extra, stdout=subprocess.DEVNULL)
        self.connection = http.client.HTTPConnection("127.0.0.1", port)
        for _ in range(3000):
            if self.process.poll() is not None:
                raise SystemExit(f"the server on port {port} ended before it was healthy")
            try:
                self.connection.request("GET", "/health")
                answer = self.connection.getresponse()
                answer.read()
                if answer.status == 200:
                    return
            except OSError:
                self.connection.close()
            time.sleep(0.02)
        raise SystemExit(f"the server on port {port} did not become healthy")

    def run(self):
        os.kill(self.process.pid, signal.SIGCONT)

    def stop(self):
        os.kill(self.process.pid, signal.SIGSTOP)

    def end(self):
        self.process.kill()
        self.process.wait()


class Call(threading.Thread):
    def __init__(self, server, prompt, output_tokens):
        super().__init__()
        self.server = server
        self.body = json.dumps({"input_ids": prompt, "sampling_params": {
            "max_new_tokens": output_tokens, "temperature": 0, "ignore_eos": True}})
        self.ended = None
        self.answer = None

    def run(self):
        connection = self.server.connection
        connection.request("POST", "/generate", self.body, {"Content-Type": "application/json"})
        self.answer = json.load(connection.getresponse())
        self.ended = time.perf_counter()

    def check(self):
        if self.answer.get("meta_info", {}).get("cached_tokens") != 0:
            raise SystemExit(f"not the answer to a unique prompt: {str(self.answer)[:300]}")


def in_turn(servers, prompt, output_tokens, first):
    """Seconds that each server ran until it had answered."""
    calls = [Call(server, prompt, output_tokens) for server in servers]
    seconds = [0.0, 0.0]
    for server in servers:
        server.stop()
    for call in calls:
        call.start()
    time.sleep(0.005)  # the requests are in the sockets
    who = first
    while any(call.ended is None for call in calls):
        if calls[who].ended is None:
            begin = time.perf_counter()
            servers[who].run()
            calls[who].join(SLICE_SECONDS)
            servers[who].stop()
            seconds[who] += (calls[who].ended or time.perf_counter()) - begin
        who = 1 - who
    for server, call in zip(servers, calls):
        server.run()
        call.join()
        call.check()
    return seconds


def measure_start(arguments, number, draw):
    """Medians of the milliseconds with and without, and of their ratio."""
    kinds = [(WITHOUT_CACHE if arguments.same else [], 18741), (WITHOUT_CACHE, 18742)]
    servers = [None, None]
    try:
        for who in (0, 1) if number % 2 == 0 else (1, 0):
            servers[who] = Server(arguments, kinds[who][1], kinds[who][0])
        for _ in range(arguments.warm_up):
            prompt = draw(WARM_UP_TOKENS)
            for server in servers:
                call = Call(server, prompt, 1)
                call.run()
                call.check()
        pairs = []
        for i in range(arguments.pairs + 1):
            prompt = draw(arguments.prompt_tokens)
            pair = in_turn(servers, prompt, arguments.output_tokens, (i + number) % 2)
            if i > 0:  # the first one of its length warms up
                pairs.append(pair)
    finally:
        for server in servers:
            if server is not None:
                server.end()
    return (1e3 * statistics.median(a for a, _ in pairs), 1e3 * statistics.median(b for _, b in pairs),
            statistics.median(a / b for a, b in pairs))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--heddle", default="build/release/bin/heddle")
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--output-tokens", type=int, default=1)
    parser.add_argument("--starts", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=4, help="of each start")
    parser.add_argument("--warm-up", type=int, default=8,
                        help=f"prompts of {WARM_UP_TOKENS} tokens before them, which fill the pools")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--same", action="store_true", help="both without the cache")
    words = sys.argv[1:] + ["--"]
    arguments = parser.parse_args(words[: words.index("--")])
    arguments.serve = words[words.index("--") + 1 : -1]
    if arguments.starts < 2 or arguments.pairs < 1:
        parser.error("--starts must be 2 or more, --pairs 1 or more")

    random.seed(arguments.seed)
    starts = [
        measure_start(arguments, number,
                      lambda count: [random.randrange(10, 1400) for _ in range(count)])
        for number in range(arguments.starts)
    ]
    percents = [100 * (ratio - 1) for _, _, ratio in starts]
    print(json.dumps({
        "prompt_tokens": arguments.prompt_tokens,
        "output_tokens": arguments.output_tokens,
        "starts": arguments.starts,
        "pairs_per_start": arguments.pairs,
        "with_cache_ms": round(statistics.median(a for a, _, _ in starts), 2),
        "without_ms": round(statistics.median(b for _, b, _ in starts), 2),
        "mean_percent": round(statistics.mean(percents), 2),
        "standard_error_percent": round(statistics.stdev(percents) / len(percents) ** 0.5, 2),
        "median_percent": round(statistics.median(percents), 2),
    }))


if __name__ == "__main__":
    main()
