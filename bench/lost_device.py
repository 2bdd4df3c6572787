#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks `heddle serve` when the GPU is lost under load.

Starts a server with lose_device.so (lose_device.cu) in its process, and clients that complete chats, half of
them streamed. When each has had an answer and waits for a long one, a kernel traps. Within 10 seconds every
request must then have ended, with status 500 or an error as the last event of its stream; /health must say 503 until
the port is closed; and the process must have ended with exit code 1 and one line that begins with "error:".
Prints what happened as JSON; exit code 1 if any of that was otherwise:

  bench/lost_device.py models/heddle-tiny --heddle build/cuda/bin/heddle --library build/cuda/lose_device.so

The arguments after -- are options of the server.
"""

import argparse
import collections
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))
START_SECONDS = 120  # for loading
REQUEST_SECONDS = 60
LIMIT_SECONDS = 10  # for all that follows the trap
FIRST_TOKENS = 16
LONG_TOKENS = 6000  # of the 8,192 that heddle-tiny takes; a client whose answer is complete before the trap asks again
LOAD_SECONDS = 0.3  # of the long requests, before the trap


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def health(port):
    """Status and body of /health; "refused" where the port is closed."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_SECONDS)
    try:
        connection.request("GET", "/health")
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    except (OSError, http.client.HTTPException):
        return "refused", {}
    finally:
        connection.close()


def wait_until_healthy(server, port):
    """The answer of /health then."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and server.poll() is None:
        status, body = health(port)
        if status == 200:
            return body
        time.sleep(0.05)
    raise RuntimeError(f"the server was not healthy within {START_SECONDS} s; exit code: {server.poll()}")


def ask(port, stream, max_tokens):
    """How the answer ended: "complete", "status 500", "error event" or whatever else came."""
    body = {"messages": [{"role": "user", "content": "Tell me a story about a cat."}], "stream": stream,
            "max_tokens": max_tokens, "ignore_eos": True}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=REQUEST_SECONDS)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200 or not stream:
            response.read()
            return "complete" if response.status == 200 else f"status {response.status}"
        last, done = b"{}", False
        for line in response:
            if line.startswith(b"data: {"):
                last = line[len(b"data: "):]
            done = done or line.startswith(b"data: [DONE]")
        if not done:
            return "stream cut off"
        return "error event" if "error" in json.loads(last) else "complete"
    except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
        return type(error).__name__
    finally:
        connection.close()


def client(port, stream, ends, lost):
    ends.append(ask(port, stream, FIRST_TOKENS))
    while not lost.is_set() and ends[-1] == "complete":
        ends.append(ask(port, stream, LONG_TOKENS))


def lose(server, port, file, num_clients):
    """Puts the server under load, loses the device, and returns what came of it."""
    lost = threading.Event()
    ends = [[] for _ in range(num_clients)]
    clients = [threading.Thread(target=client, args=(port, i % 2 == 0, ends[i], lost), daemon=True)
               for i in range(num_clients)]
    for thread in clients:
        thread.start()
    deadline = time.monotonic() + REQUEST_SECONDS
    while not all(ends) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(LOAD_SECONDS)
    num_before = sum(map(len, ends))
    wrong_before = [end for of_client in ends for end in of_client if end != "complete"]
    if wrong_before or not all(ends):
        raise RuntimeError(f"before the trap, of {num_clients} clients' answers {num_before} ended, "
                           f"{len(wrong_before)} of these as {sorted(set(wrong_before))}")

    begin = time.monotonic()
    seconds = lambda: round(time.monotonic() - begin, 3)
    lost.set()
    open(file, "w").close()
    for thread in clients:
        thread.join(max(0, LIMIT_SECONDS - seconds()))
    result = {"answers_before": num_before, "requests_hang": sum(thread.is_alive() for thread in clients),
              "last_request_ended_s": seconds(),
              "requests": collections.Counter(of_client[-1] for of_client, thread in zip(ends, clients)
                                              if not thread.is_alive())}
    statuses = collections.Counter()
    while server.poll() is None and seconds() < LIMIT_SECONDS:
        statuses[str(health(port)[0])] += 1
        time.sleep(0.005)
    return {**result, "health": statuses, "exited_s": seconds(), "exit_code": server.poll()}


def judge(result, lines):
    """Yields the deviations from the promise. A request that was complete before the server noticed is no failure."""
    ends = result["requests"]
    errors = [line for line in lines if line.startswith("error:")]
    if not any("lose_device: launched" in line and "no error" in line for line in lines):
        yield "no kernel trapped: did the driver load lose_device.so?"
    if result["requests_hang"]:
        yield f"{result['requests_hang']} requests had no end {LIMIT_SECONDS} s after the trap"
    if set(ends) - {"status 500", "error event", "complete"}:
        yield "requests ended otherwise than with status 500 or an error event"
    if not (ends["status 500"] and ends["error event"]):
        yield "not both kinds of requests failed"
    if set(result["health"]) - {"503", "refused"}:
        yield "/health answered otherwise than with 503"
    if result["exit_code"] != 1:
        yield f"the exit code is not 1 ({LIMIT_SECONDS} s after the trap; null: it still runs)"
    if len(errors) != 1 or "the engine stopped: " not in errors[0]:
        yield "there is not one line \"error: the engine stopped: ...\""
    if not any("the engine stops: DEVICE_LOST" in line for line in lines):
        yield "the log does not say that the device is lost"


def commit():
    if os.path.exists(packed := os.path.join(FOLDER, "commit")):  # in the archive of ./run pack
        return open(packed).read().strip()
    described = subprocess.run(["git", "-C", FOLDER, "describe", "--always", "--dirty"],
                               capture_output=True, text=True)
    return described.stdout.strip() or "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--heddle", default="build/cuda/bin/heddle")
    parser.add_argument("--library", default="build/cuda/lose_device.so")
    parser.add_argument("--clients", type=int, default=32)
    given = sys.argv[1:]
    split = given.index("--") if "--" in given else len(given)
    arguments = parser.parse_args(given[:split])
    if not os.path.exists(arguments.library):
        raise SystemExit(f"error: there is no {arguments.library}; ./run build cuda makes it")
    port = free_port()
    command = [arguments.heddle, "serve", arguments.model, "--device", "cuda", "--port", str(port),
               *given[split + 1:]]
    with tempfile.TemporaryDirectory() as folder:
        file, log = os.path.join(folder, "lose"), os.path.join(folder, "log")
        environment = {**os.environ, "CUDA_INJECTION64_PATH": os.path.abspath(arguments.library),
                       "LOSE_DEVICE_WHEN": file}
        with open(log, "w") as stderr:
            server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=stderr)
        try:
            device = wait_until_healthy(server, port)["device"]
            result = lose(server, port, file, arguments.clients)
            with open(log) as lines:
                lines = lines.read().splitlines()
            failures = list(judge(result, lines))
            report = {"benchmark": "a GPU lost under load", "commit": commit(),
                      "command": " ".join(["bench/lost_device.py", *given]).replace(FOLDER + "/", ""),
                      "machine": {"device": device, "cores": os.cpu_count()},
                      "clients": arguments.clients, **result,
                      "error_lines": [line for line in lines if line.startswith("error:")], "failures": failures}
            print(json.dumps(report, indent=1), flush=True)
        except RuntimeError as error:
            failures = [str(error)]
        finally:
            server.kill()
            server.wait()
        if failures:
            with open(log) as lines:  # but for what it says of each request
                lines = [line for line in lines.read().splitlines() if "chatcmpl-" not in line]
            print("the end of the server's log:", *lines[-20:], sep="\n", file=sys.stderr)
            raise SystemExit("\n".join(f"error: {failure}" for failure in failures))


main()
