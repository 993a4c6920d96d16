"""serve_soak.py PLIMSOLL [SECONDS [REQUESTS]]: hostile clients of every kind beside honest ones, for so many seconds; then so many equal requests, none of
them kept. Prints how long honest requests take with and without them, and what the server and its workers hold. Fails where an honest request is lost, where
the slowest of a hundred takes three times the quiet one's, or where memory grows.

Quiet and hostile times alternate, so that a machine that does something else meanwhile does it to both. Hostile clients have the lowest priority: they stand for
others' machines, and what they cost here must be what the server spends on them. No honest request is asked twice: each is computed."""
import atexit
import gzip
import http.client
import json
import multiprocessing
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time

MOST_MEBIBYTES, MOST_TIMES = 60, 3
#: Seconds of hostile clients between two quiet times.
ROUND = 30
REQUEST = {"command": "estimate", "model": "gpt2", "on": "1xh100-sxm", "strategy": {"micro_batch": 8, "seq_len": 1024}}

#: Seconds of a processor's time.
LONG = {"command": "explain", "model": "llama-3.1-405b", "on": "2048x8xh100-sxm",
        "strategy": {"framework": "torchtitan", "tp": 8, "pp": 16, "micro_batch": 1, "global_batch": 2048, "seq_len": 8192}}


def resident(process):
    with open(f"/proc/{process}/status", encoding="ascii") as file:
        return int(re.search(r"VmRSS:\s+(\d+) kB", file.read()).group(1)) / 1024


def workers_of(process):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], stdout=subprocess.PIPE, check=True).stdout
    return [int(each) for each in found.split()]


def processor_seconds(process):
    """What it and its workers have had of the processors."""
    sum_of_ticks = 0
    for each in [process, *workers_of(process)]:
        with open(f"/proc/{each}/stat", encoding="ascii") as file:
            words = file.read().rsplit(")", 1)[1].split()
        sum_of_ticks += int(words[11]) + int(words[12])
    return sum_of_ticks / os.sysconf("SC_CLK_TCK")


class Soak:
    def __init__(self, program, *words):
        self.process = subprocess.Popen([program, "serve", "--port", "0", *words], stderr=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)   # whatever becomes of the soak
        self.port = int(re.search(r":(\d+)/", self.process.stderr.readline()).group(1))
        self.ends, self.largest = 0.0, 0.0
        self.kinds = [self.pack, self.chunk, self.fill, self.boast, self.head, self.drip, self.deaf, self.noise, self.toil]
        self.hostile = {kind.__name__: multiprocessing.Value("q", 0) for kind in self.kinds}
        self.asked = 0

    def connected(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def over(self):
        return time.monotonic() > self.ends

    # ---- hostile clients, each for as long as the soak lasts -----------------------------------------------------------

    def poured(self, head, body):
        """A request as it is, and whatever comes back."""
        with self.connected() as connection:
            connection.sendall(head)
            for piece in body:
                connection.sendall(piece)
            connection.recv(1000)

    def pack(self):
        body = gzip.compress(b" " * (64 << 20))
        self.poured(b"POST /api/call HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body), [body])

    def chunk(self):
        self.poured(b"POST /api/call HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n", [b"80000\r\n" + b" " * 0x80000 + b"\r\n"] * 600)

    def fill(self):
        self.poured(b"POST /api/call HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 8388608\r\n\r\n", [b" " * 8388608])

    def boast(self):
        """Bodies of the whole size that never end: what the server holds for them is bounded."""
        held = [self.connected() for _ in range(12)]
        for each in held:
            each.sendall(b"POST /api/call HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 8388608\r\n\r\n" + b" " * 8_000_000)
        time.sleep(3)
        for each in held:
            each.close()

    def head(self):
        self.poured(b"GET / HTTP/1.1\r\nHost: localhost\r\n", [b"X-%d: y\r\n" % number for number in range(37_500)])

    def drip(self):
        """Seventy that send a byte in two seconds."""
        slow = [self.connected() for _ in range(70)]
        text = b"POST /api/call HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
        for at in range(8):
            for each in slow:
                try:
                    each.send(text[at:at + 1])
                except OSError:
                    pass
            if self.over():
                break
            time.sleep(2)
        for each in slow:
            each.close()

    def deaf(self):
        """Asks for much, and takes none of it."""
        body = json.dumps({**REQUEST, "command": "view"}).encode()
        deaf = [self.connected() for _ in range(20)]
        for each in deaf:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            each.sendall(b"POST /api/call HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        time.sleep(3)
        for each in deaf:
            each.close()

    def noise(self):
        self.poured(os.urandom(20_000), [os.urandom(20_000) + b"\r\n\r\n"])

    def toil(self):
        """Asks four times at once for what takes seconds, never the same."""
        held = [self.connected() for _ in range(4)]
        for each in held:
            body = json.dumps({**LONG, "strategy": {**LONG["strategy"], "seq_len": random.randrange(64, 8192)}}).encode()
            each.sendall(b"POST /api/call HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        for each in held:
            each.recv(1000)
            each.close()

    def abuse(self, kind):
        os.nice(19)
        while not self.over():
            try:
                kind()
            except OSError:   # turned away
                pass
            self.hostile[kind.__name__].value += 1

    # ---- honest ones -----------------------------------------------------------------------------------------------------

    def distinct(self):
        """A request that was not asked before: of some 60,000."""
        self.asked += 1
        return {**REQUEST, "strategy": {"micro_batch": 1 + self.asked // 960 % 64, "seq_len": 64 + self.asked % 960}}

    def ask(self, times, lost):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        while not self.over():
            text = json.dumps(self.distinct())
            began = time.monotonic()
            try:
                connection.request("POST", "/api/call", text, {"Content-Type": "application/json"})
                response = connection.getresponse()
                response.read()
                if response.status != 200:
                    lost.append(response.status)
            except (OSError, http.client.HTTPException) as problem:
                lost.append(repr(problem))
                connection.close()
            times.append(time.monotonic() - began)
            time.sleep(0.02)
            self.largest = max(self.largest, resident(self.process.pid))

    def phase(self, seconds, kinds, times, lost):
        """Two honest clients, whose times and losses are added to those lists, beside one hostile client of each kind."""
        self.ends = time.monotonic() + seconds
        threads = [multiprocessing.Process(target=self.abuse, args=(kind,)) for kind in kinds]   # whose work is not the honest ones' interpreter's
        threads += [threading.Thread(target=self.ask, args=(times, lost)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def told(times):
    """Median and ninety-ninth of a hundred."""
    times.sort()
    return times[len(times) // 2], times[len(times) * 99 // 100]


def soak(program, seconds, only=()):
    server = Soak(program)
    kinds = [kind for kind in server.kinds if not only or kind.__name__ in only]
    quiet, loud, lost = [], [], []
    rounds = max(1, round(seconds / ROUND))
    for _ in range(rounds):
        server.phase(seconds / rounds / 5, [], quiet, lost)
        server.phase(seconds / rounds, kinds, loud, lost)
    (quiet_median, quiet_p99), (median, p99) = told(quiet), told(loud)
    print(f"honest alone: median {quiet_median * 1e3:.1f} ms, p99 {quiet_p99 * 1e3:.1f} ms of {len(quiet)}")
    print(f"beside {len(kinds)} hostile clients ({', '.join(f'{kind.__name__} {server.hostile[kind.__name__].value}' for kind in kinds)}): "
          f"median {median * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms of {len(loud)}: {p99 / quiet_p99:.1f} times; lost {len(lost)} {lost[:3]}; "
          f"server at most {server.largest:.0f} MiB", flush=True)
    server.process.terminate()
    code = server.process.wait()
    return code == 0 and not lost and p99 <= MOST_TIMES * quiet_p99 and server.largest <= MOST_MEBIBYTES


def equal_requests(program, count):
    server = Soak(program, "--cache", "0", "--workers", "1")
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    text, figures, spent = json.dumps(REQUEST), [], processor_seconds(server.process.pid)
    spent = processor_seconds(server.process.pid)
    for number in range(count):
        connection.request("POST", "/api/call", text, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        assert response.status == 200, response.status
        if number in (count // 10, count - 1):
            figures.append((resident(server.process.pid), *(resident(each) for each in workers_of(server.process.pid))))
    spent = processor_seconds(server.process.pid) - spent
    print(f"{count} equal requests, computed each: MiB of server and worker {figures[0]} after a tenth, {figures[1]} at the end; "
          f"{count / spent:.0f} in a second of one processor")
    server.process.terminate()
    server.process.wait()
    return all(after <= before + 8 for before, after in zip(*figures))


def main(program, seconds=600, requests=100_000):
    good = [soak(program, float(seconds))]
    if int(requests) > 0:
        good.append(equal_requests(program, int(requests)))
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
