#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Start and resident memory of `heddle serve`.

Starts a server many times, one after the other. Of each it measures the time from the start of the
process to the first /health that answers 200, the resident memory then, and the resident memory after
a few completions at once. Prints medians and ranges as JSON:

  bench/start_time.py models/heddle-tiny --starts 20

The arguments after -- are options of the server. Memory is read from /proc, so this runs on Linux only.
"""

import argparse
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

TIMEOUT_SECONDS = 60
ROLLUP_FIELDS = {"Rss": "resident_mib", "Pss_Anon": "anonymous_mib", "Pss_File": "files_mib"}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def health_status(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status
    except OSError:
        return None  # it does not listen yet
    finally:
        connection.close()


def wait_until_healthy(process, port):
    end = time.perf_counter() + TIMEOUT_SECONDS
    while time.perf_counter() < end:
        if process.poll() is not None:
            raise SystemExit(f"the server ended with exit code {process.returncode}; try the command by hand")
        if health_status(port) == 200:
            return
        time.sleep(0.0005)
    raise SystemExit(f"the server was not healthy within {TIMEOUT_SECONDS} s")


def resident_memory(pid):
    """In MiB: all of it, what the process allocated, and pages of files: weights, program, libraries."""
    memory = {}
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        for line in rollup:
            name = line.split(":")[0]
            if name in ROLLUP_FIELDS:
                memory[ROLLUP_FIELDS[name]] = int(line.split()[1]) / 1024
    return memory


def complete(port, max_tokens, statuses):
    body = json.dumps({"prompt": "In a small town", "max_tokens": max_tokens, "ignore_eos": True})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    response.read()
    statuses.append(response.status)
    connection.close()


def run_once(arguments):
    port = free_port()
    command = [arguments.heddle, "serve", arguments.model, "--port", str(port), "--log-level", "error",
               *arguments.serve]
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wait_until_healthy(process, port)
        row = {"healthy_ms": (time.perf_counter() - begin) * 1e3}
        row.update({f"{name}_at_start": value for name, value in resident_memory(process.pid).items()})
        statuses = []
        clients = [threading.Thread(target=complete, args=(port, arguments.output_tokens, statuses))
                   for _ in range(arguments.completions)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        if statuses != [200] * arguments.completions:
            raise SystemExit(f"completions were answered with {statuses}, not with 200 each")
        row.update({f"{name}_after": value for name, value in resident_memory(process.pid).items()})
        return row
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def cpu_model():
    with open("/proc/cpuinfo") as lines:
        return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")


def commit():
    folder = os.path.dirname(os.path.abspath(__file__))
    described = subprocess.run(["git", "-C", folder, "describe", "--always", "--dirty"],
                               capture_output=True, text=True)
    return described.stdout.strip() or "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--heddle", default="build/release/bin/heddle")
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--completions", type=int, default=8, help="at once")
    parser.add_argument("--output-tokens", type=int, default=200, help="of each completion")
    given = sys.argv[1:]
    split = given.index("--") if "--" in given else len(given)
    arguments = parser.parse_args(given[:split])
    arguments.serve = given[split + 1:]
    rows = [run_once(arguments) for _ in range(arguments.starts)]
    report = {"benchmark": "start and resident memory of heddle serve",
              "command": " ".join(["bench/start_time.py", *given]), "commit": commit(),
              "machine": {"cpu": cpu_model(), "cores": os.cpu_count()},
              "starts": arguments.starts, "completions": arguments.completions,
              "output_tokens": arguments.output_tokens, "rows": []}
    for name in rows[0]:
        values = [row[name] for row in rows]
        report["rows"].append({"measured": name, "median": round(statistics.median(values), 2),
                               "least": round(min(values), 2), "most": round(max(values), 2)})
    print(json.dumps(report, indent=1))


main()
