"""serve_load.py PLIMSOLL [SECONDS [CONNECTIONS]]: estimates of Llama-3.1-8B that `plimsoll serve` answers in a second, and how long the slowest of a hundred takes;
how many a second of one processor does, which others' work on the machine changes little.

Two loads: `distinct`, where no request was asked before (every one is computed), and `mixed`, where people ask around a plan (64 requests, evenly drawn)."""
import http.client
import json
import random
import re
import subprocess
import sys
import threading
import time

from serve_soak import processor_seconds


def request_of(number):
    return json.dumps({"command": "estimate", "model": "llama-3.1-8b", "on": "8xmi300x",
                       "strategy": {"fsdp": "full", "micro_batch": 1 + number % 4, "seq_len": 8192 - number // 4}})


def ask(port, requests, ends, times):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for number in requests:
        began = time.monotonic()
        if began > ends:
            return
        connection.request("POST", "/api/call", request_of(number), {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        assert response.status == 200, response.status
        times.append(time.monotonic() - began)


def load(server, port, name, seconds, connections):
    times, ends, spent = [], time.monotonic() + seconds, processor_seconds(server)

    def numbers(first):
        if name == "distinct":
            return range(first, 7000 * 4, connections)
        draw = random.Random(first)
        return (draw.randrange(64) for _ in range(10**9))

    threads = [threading.Thread(target=ask, args=(port, numbers(each), ends, times)) for each in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times.sort()
    spent = processor_seconds(server) - spent
    print(f"{name}: {len(times) / seconds:.0f} a second, {len(times) / spent:.0f} in a second of one processor, median {times[len(times) // 2] * 1e3:.1f} ms, p99 {times[len(times) * 99 // 100] * 1e3:.1f} ms")


def main(program, seconds=10, connections=4):
    server = subprocess.Popen([program, "serve", "--port", "0"], stderr=subprocess.PIPE, text=True)
    try:
        port = int(re.search(r":(\d+)/", server.stderr.readline()).group(1))
        for name in ("distinct", "mixed"):
            load(server.pid, port, name, float(seconds), int(connections))
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
