"""`plimsoll serve` from outside: answers, limits, wrong and hostile requests, and its end."""
import atexit
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

from driver import PROGRAM, SANITIZED, Checks, run

REQUEST = {"command": "estimate", "model": "gpt2", "on": "1xh100-sxm", "strategy": {"micro_batch": 8, "seq_len": 1024}}
#: More than a second of a processor's time.
SLOW = {"command": "explain", "model": "llama-3.1-405b", "on": "2048x8xh100-sxm",
        "strategy": {"framework": "torchtitan", "tp": 8, "pp": 16, "micro_batch": 1, "global_batch": 2048, "seq_len": 8192}}


class Server:
    def __init__(self, *words, cache=0):
        self.process = subprocess.Popen([PROGRAM, "serve", "--port", "0", "--cache", str(cache), *words], stderr=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)   # whatever becomes of the test
        line = self.process.stderr.readline()
        self.port = int(re.search(r":(\d+)/", line).group(1))

    def call(self, body, method="POST", path="/api/call", **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=150)
        text = body if isinstance(body, (bytes, str)) else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}})
        response = connection.getresponse()
        answer = response.read()
        connection.close()
        return response.status, answer, response

    def end(self, sent=signal.SIGTERM):
        self.process.send_signal(sent)
        return self.process.wait(timeout=120)


def check_answers(checks, server):
    status, text, response = server.call(REQUEST)
    printed = json.loads(run("estimate", "gpt2", "--on", "1xh100-sxm", "--micro-batch", "8", "--seq", "1024", "--json").out)
    checks.check(status == 200 and json.loads(text) == printed, f"the estimate: {status}")
    checks.check("default-src 'self'" in response.getheader("Content-Security-Policy", ""), "no content security policy")
    checks.check(server.call("", "GET", "/api/health")[0] == 200, "health")
    for command in ("version", "models", "hardware", "options"):
        checks.check(server.call({"command": command})[0] == 200, command)
    status, text, _ = server.call({**REQUEST, "command": "choices", "keys": {"fsdp": ["full"], "recompute": ["full", "none", "nonsense"]}})
    refused = json.loads(text)["refused"]
    checks.check(status == 200 and refused["recompute"][:2] == [None, None] and "nonsense" in refused["recompute"][2], str(refused))


def check_wrong(checks, server):
    secret = os.path.abspath(__file__)
    for body, expected, said in (("{", 400, "JSON"), ("[]", 400, "object"), ("", 400, ""), ("[" * 100000, 400, ""), (b"\xff\xfe", 400, ""), ('{"command":"no"}', 400, "no command"),
                                 (b'{"command":"version"}\0', 400, "zero byte"), (json.dumps({**REQUEST, "model": "gtp2"}), 400, "gpt2"),
                                 (json.dumps({**REQUEST, "model": "/etc/passwd"}), 400, ""), (json.dumps({**REQUEST, "on": secret}), 400, "")):
        status, text, _ = server.call(body)
        checks.check(status == expected and json.loads(text)["schema"] == "plimsoll/error/1" and said in text.decode(), f"{str(body)[:60]}: {status} {text[:200]}")
        checks.check(b"root:" not in text, "a file of the machine was read")
    checks.check(server.call(REQUEST, Content_Type="text/plain")[0] == 415, "a form's content type")
    checks.check(server.call(REQUEST, Host="evil.example")[0] == 421, "a foreign name (DNS rebinding)")
    checks.check(server.call(b" " * (9 << 20))[0] == 413, "a request of 9 MiB")
    checks.check(server.call("", "GET", "/../../../../etc/passwd")[0] in (400, 404), "a path out of the page")
    checks.check(server.call("", "DELETE")[0] in (400, 404, 405), "another method")


def check_hostile_connections(checks, server):
    """Connections that say nothing, or half a request, cost nobody else's."""
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(40)]
    for each in idle:
        each.sendall(b"POST /api/call HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n")
    status, _, _ = server.call(REQUEST)
    checks.check(status == 200, "others wait for idle connections")
    for each in idle:
        each.close()
    rough = socket.create_connection(("127.0.0.1", server.port))
    rough.sendall(os.urandom(4096) + b"\r\n\r\n")
    rough.close()
    checks.check(server.call(REQUEST)[0] == 200, "after bytes that are no HTTP")


def until(server, body, wanted, tries=600):
    """Asks until that status is answered, for a minute: how long a process takes to start is the machine's affair."""
    for _ in range(tries):
        status = server.call(body)[0]
        if status == wanted:
            return True
        time.sleep(0.1)
    return False


def begun(server):
    """A thread that has the slow request answered, and the list that its status comes into: a question asked meanwhile may have had the one worker."""
    results = []

    def ask():
        status = 503
        while status == 503:
            status = server.call(SLOW)[0]
        results.append(status)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread, results


def check_cache(checks):
    """Equal requests get equal answers, also where no worker is free; a kept answer makes room for newer ones."""
    server = Server("--workers", "1", "--waiting", "0", "--seconds", "150", cache=1)
    first, wrong = server.call(REQUEST), server.call({**REQUEST, "model": "gtp2"})
    thread, _ = begun(server)
    ask = ({"command": "version", "try": number} for number in range(10**6))
    while server.call(next(ask))[0] != 503:
        time.sleep(0.05)
    checks.check(server.call(REQUEST)[:2] == first[:2], "an equal request is not answered while the worker is busy")
    checks.check(server.call({**REQUEST, "model": "gtp2"})[:2] == wrong[:2] and wrong[0] == 400, "an equal wrong request gets another answer")
    thread.join()
    for micro_batch in range(1, 200):
        server.call({**REQUEST, "strategy": {"micro_batch": micro_batch, "seq_len": 1024}})
    checks.check(server.call(REQUEST)[:2] == first[:2], "a forgotten request is answered differently")
    server.end()


def check_limits(checks):
    server = Server("--workers", "1", "--waiting", "0", "--seconds", "0.3")
    checks.check(server.call(SLOW)[0] == 504, "a request beyond its time is not ended")
    checks.check(until(server, {"command": "version"}, 200), "no request is answered after one that was ended")
    server.end()
    if not SANITIZED:   # whose memory has no limit
        server = Server("--workers", "1", "--memory", "100", "--seconds", "60")
        status = server.call(SLOW)[0]
        checks.check(status in (400, 500), f"a request beyond its memory: {status}")
        checks.check(until(server, {"command": "version"}, 200), "no request is answered after one that took too much memory")
        server.end()
    server = Server("--workers", "1", "--waiting", "0", "--seconds", "150")
    results = []
    threads = [threading.Thread(target=lambda: results.append(server.call(SLOW)[0])) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    checks.check(set(results) <= {200, 503} and 200 in results and 503 in results, f"six requests for one worker that nobody may wait for: {results}")
    server.end()


def check_end(checks):
    server = Server("--workers", "1", "--waiting", "0", "--seconds", "150")
    thread, results = begun(server)
    checks.check(until(server, {"command": "version"}, 503), "the slow request never began")
    code = server.end()
    thread.join()
    checks.check(code == 0 and results == [200], f"asked to end it ends with {code}, and the request begun got {results}")
    server = Server()
    taken = subprocess.run([PROGRAM, "serve", "--port", str(server.port)], stderr=subprocess.PIPE, text=True, check=False)
    checks.check(taken.returncode == 2 and "cannot be had" in taken.stderr, f"a port that is taken: {taken.returncode} {taken.stderr}")
    server.end(signal.SIGINT)


def main():
    if "serve" not in run("--help").out:
        print("this build has no serve")
        sys.exit(77)
    checks = Checks()
    server = Server()
    for check in (check_answers, check_wrong, check_hostile_connections):
        check(checks, server)
    server.end()
    check_cache(checks)
    check_limits(checks)
    check_end(checks)
    checks.finish()


if __name__ == "__main__":
    main()
