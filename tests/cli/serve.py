"""`plimsoll serve` from outside: answers, limits, wrong and hostile requests, and its end."""
import atexit
import gzip
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


#: 100,000 micro-batches of a pipeline: some 50 MiB.
LARGE = {"command": "estimate", "model": "gpt2", "on": "8xh100-sxm",
         "strategy": {"framework": "megatron-core", "pp": 4, "micro_batch": 1, "global_batch": 200_000, "seq_len": 128}}


class Server:
    def __init__(self, *words, cache=0, group=False):
        self.process = subprocess.Popen([PROGRAM, "serve", "--port", "0", "--cache", str(cache), *words], stderr=subprocess.PIPE, text=True, start_new_session=group)
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


def talk(port, sent, wait=15.0):
    """What the server says to those bytes, until it closes or says nothing for a while."""
    with socket.create_connection(("127.0.0.1", port), timeout=wait) as connection:
        heard = b""
        try:
            connection.sendall(sent)
        except OSError:   # it answered and closed before all was sent
            pass
        try:
            while piece := connection.recv(65536):
                heard += piece
        except OSError:
            pass
    return heard


def head(length=None, more="", method="POST", path="/api/call"):
    lines = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return (lines + (f"Content-Length: {length}\r\n" if length is not None else "") + more + "\r\n").encode()


def status_of(answer):
    found = re.match(rb"HTTP/1.1 (\d+)", answer)
    return int(found.group(1)) if found else None


def memory_of(process, what="VmRSS"):
    with open(f"/proc/{process}/status", encoding="ascii") as file:
        return int(re.search(what + r":\s+(\d+) kB", file.read()).group(1)) / 1024


def workers_of(server):
    """Those that run, the first started first."""
    found = subprocess.run(["ps", "-o", "pid=", "--sort", "start_time", "--ppid", str(server.process.pid)], stdout=subprocess.PIPE, check=False).stdout
    return [int(each) for each in found.split()]   # none, where one was ended just now


def check_answers(checks, server):
    status, text, response = server.call(REQUEST)
    printed = json.loads(run("estimate", "gpt2", "--on", "1xh100-sxm", "--micro-batch", "8", "--seq", "1024", "--json").out)
    answer = json.loads(text)
    for settings in (answer["strategy"], printed["strategy"]):  # a flag here, a key of the request there
        for setting in settings.values():
            del setting["where"]
    checks.check(status == 200 and answer == printed, f"the estimate: {status}")
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


def check_files(checks, server):
    """Nothing tells whether a path is there, what it is, or how large: all of these get the answer of one that is not."""
    def told(path, key="model"):
        status, text, _ = server.call({**REQUEST, key: path})
        return status, text.decode().replace(path, "PATH")

    folder = os.path.dirname(os.path.abspath(__file__))
    for key in ("model", "on"):
        nowhere = told("/nowhere/at/all.json", key)
        for path in (os.path.join(folder, "serve.py"), folder, "/dev/zero", "/etc/shadow", "/proc/self/mem"):
            checks.check(told(path, key)[0] == 400, f"{key} {path} is taken")
            if path.count("/") > 2 or key == "on":
                checks.check(told(path + ".json", key) == nowhere or told(path, key) == nowhere, f"{key} {path} tells that it is there: {told(path, key)}")
    began = time.monotonic()
    status, text, _ = server.call({**REQUEST, "model": "-"})
    checks.check(status == 400 and b"standard input" in text and time.monotonic() - began < 5, f"standard input: {status} {text[:200]}")
    status, text, _ = server.call({"command": "estimate", "from": ["/etc/hostname"], "on": "1xh100-sxm"})
    checks.check(status == 400 and b"no such file" in text, f"a file of the machine by from: {text[:200]}")


def check_poured(checks, server):
    """Requests that are larger than they say, or endless, in every form that HTTP has for it."""
    packed = gzip.compress(b" " * (64 << 20))
    checks.check(status_of(talk(server.port, head(len(packed), "Content-Encoding: gzip\r\n") + packed)) == 415, "a packed request")
    checks.check(status_of(talk(server.port, head(more="Transfer-Encoding: gzip, chunked\r\n") + b"0\r\n\r\n")) == 501, "a packed transfer")
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    checks.check(status_of(talk(server.port, head(more="Transfer-Encoding: chunked\r\n") + chunk * 12)) == 413, "chunks of 12 MiB in all")
    text = json.dumps({"command": "version"}).encode()
    whole = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (text[:5], text[5:])) + b"0\r\n\r\n"
    checks.check(status_of(talk(server.port, head(more="Transfer-Encoding: chunked\r\nConnection: close\r\n") + whole)) == 200, "an honest request in chunks")
    checks.check(status_of(talk(server.port, head(10**12) + b"{")) == 413, "a length of a terabyte")
    checks.check(status_of(talk(server.port, head(2, "".join(f"X-{i}: {i}\r\n" for i in range(300))) + b"{}")) == 431, "300 headers")
    checks.check(status_of(talk(server.port, head(2, "".join(f"X-{i}: {i}\r\n" for i in range(37_500))) + b"{}")) == 431, "37,500 headers")
    checks.check(status_of(talk(server.port, head(2, "X: " + "y" * 100_000 + "\r\n") + b"{}")) == 431, "a header of 100 kB")
    ranges = "Range: bytes=" + ",".join(f"{i}-{i + 1}" for i in range(1000)) + "\r\nConnection: close\r\n"
    answer = talk(server.port, head(more=ranges, method="GET", path="/api/health"))
    checks.check(status_of(answer) == 200 and answer.count(b'"ok"') == 1, f"a thousand ranges: {answer[:100]}")
    checks.check(status_of(talk(server.port, b"POST /api/call HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nContent-Length: 2\r\n\r\n{}")) == 400, "two hosts")
    checks.check(status_of(talk(server.port, head(5, "Content-Length: 6\r\n") + b"{}    ")) == 400, "two lengths")
    checks.check(status_of(talk(server.port, head(2, "Transfer-Encoding: chunked\r\n") + b"0\r\n\r\n")) == 400, "a length and chunks")
    checks.check(memory_of(server.process.pid) < (60 if not SANITIZED else 6000), f"the server takes {memory_of(server.process.pid):.0f} MiB")


def check_pipelined(checks, server):
    request = head(len(b'{"command":"version"}')) + b'{"command":"version"}'
    answer = talk(server.port, request * 50 + head(2, "Connection: close\r\n") + b"{}")
    checks.check(answer.count(b"HTTP/1.1 200") == 50 and answer.count(b"HTTP/1.1 400") == 1, f"of 51 requests sent at once {answer.count(b'HTTP/1.1 ')} are answered")
    goes_on = talk(server.port, head(2, "Expect: 100-continue\r\nConnection: close\r\n"), 3)
    checks.check(goes_on.startswith(b"HTTP/1.1 100"), f"a client that asks whether to go on: {goes_on[:60]}")


def check_names(checks):
    """A name that others have for the server is taken where it was allowed; addresses always are."""
    server = Server("--allow-host", "planner.example", "--workers", "1")
    for host, status in (("planner.example", 200), ("planner.example:80", 200), ("10.1.2.3:7465", 200), ("[::1]:7465", 200), ("evil.example", 421), ("planner.example.evil", 421)):
        checks.check(server.call("", "GET", "/api/health", Host=host)[0] == status, f"asked as {host}")
    server.end()


def check_slow(checks):
    """More slow clients than there are connections: others are answered at once, and the end waits for none of them."""
    server = Server("--workers", "1")
    slow = []
    for number in range(600):
        try:
            slow.append(socket.create_connection(("127.0.0.1", server.port)))
            slow[-1].sendall(head(1000)[:20 + number % 60] if number % 3 else head(1000) + b"{")
        except OSError:   # cut, since there were others
            pass
    began = time.monotonic()
    checks.check(server.call("", "GET", "/api/health")[0] == 200 and server.call(REQUEST)[0] == 200, "behind slow clients")
    checks.check(time.monotonic() - began < 3 * (10 if SANITIZED else 1), f"slow clients cost {time.monotonic() - began:.1f} s")
    began = time.monotonic()
    checks.check(server.end() == 0 and time.monotonic() - began < 10, f"it ends after {time.monotonic() - began:.1f} s beside slow clients")
    for each in slow:
        each.close()


def check_workers(checks):
    """One that is killed while idle costs nobody a request; a signal to the whole group lets the request end."""
    server = Server("--workers", "1")
    server.call({"command": "version"})
    children = workers_of(server)
    for child in children:
        os.kill(child, signal.SIGKILL)
    time.sleep(0.2)
    checks.check(len(children) == 1 and server.call({"command": "version"})[0] == 200, "the next request after an idle worker was killed")
    server.end()
    server = Server("--workers", "1", "--waiting", "0", "--seconds", "150", group=True)
    thread, results, _ = begun(checks, server)
    os.killpg(server.process.pid, signal.SIGTERM)
    code = server.process.wait(timeout=150)
    thread.join()
    checks.check(code == 0 and results == [200], f"a group that is told to end: {code}, {results}")


def check_flat(checks):
    """Thousands of equal requests, none of them kept, leave server and worker as large as they were. (bench/serve_soak.py asks far more.)"""
    server = Server("--workers", "1")
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    text = json.dumps(REQUEST)

    def ask(times):
        for _ in range(times):
            connection.request("POST", "/api/call", text, {"Content-Type": "application/json"})
            connection.getresponse().read()

    def memory():
        return memory_of(server.process.pid), memory_of(workers_of(server)[0])

    ask(300)
    before = memory()
    ask(600)
    after = memory()
    checks.check(after[0] < before[0] + 1 and after[1] < before[1] + 3, f"600 equal requests: MiB of server and worker {before} became {after}")
    server.end()


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


def patience(worker):
    """How far it stands back."""
    try:
        return os.getpriority(os.PRIO_PROCESS, worker) - os.getpriority(os.PRIO_PROCESS, 0)
    except ProcessLookupError:   # it ended meanwhile
        return 0


def begun(checks, server):
    """A thread that has the slow request answered, the list that its status comes into, and the worker that has it: one of the patient lane's, which no
    other request has started."""
    results = []
    thread = threading.Thread(target=lambda: results.append(server.call(SLOW)[0]))
    thread.start()
    for _ in range(600):
        patient = [each for each in workers_of(server) if patience(each) > 0]
        if patient:
            break
        time.sleep(0.05)
    checks.check(len(patient) == 1, f"the slow request never began: {patient}")
    return thread, results, patient[0]


def check_lanes(checks):
    """Neither long nor large requests are waited for by others: the one worker that has a long one stands still, and estimates are answered."""
    server = Server("--workers", "1", "--waiting", "0", "--seconds", "150")
    thread, results, patient = begun(checks, server)
    os.kill(patient, signal.SIGSTOP)
    checks.check(until(server, REQUEST, 200, 20), "an estimate waits for a long request")
    large = server.call(b" " * (1 << 20))[0]
    checks.check(large == 503, f"a large request beside a long one: {large}")
    checks.check(until(server, {"command": "version"}, 200, 20) and not results, f"a request beside those: {results}")
    os.kill(patient, signal.SIGCONT)
    thread.join()
    checks.check(results == [200], f"the long request: {results}")
    checks.check(server.call(b" " * (1 << 20))[0] == 400, "a large request of its own")
    server.end()


def check_full(checks, server):
    """Bodies that fill all the room there is cost nobody's small one."""
    held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(5)]
    for each in held:
        try:
            each.sendall(head(8 << 20) + b" " * 8_000_000)
        except OSError:   # cut, since there were others
            pass
        checks.check(server.call(REQUEST)[0] == 200, "beside large requests")
    for each in held:
        each.close()


def check_cache(checks):
    """Equal requests get equal answers, also where no worker is free; a kept answer makes room for newer ones."""
    server = Server("--workers", "1", "--waiting", "0", "--seconds", "150", cache=1)
    first, wrong = server.call(REQUEST), server.call({**REQUEST, "model": "gtp2"})
    worker = workers_of(server)[0]
    os.kill(worker, signal.SIGSTOP)
    results = []
    threads = [threading.Thread(target=lambda number=number: results.append(server.call({"command": "version", "try": number})[0])) for number in range(3)]
    for thread in threads:
        thread.start()
    while len(results) < 2:   # one has the worker that stands still, the others are turned away
        time.sleep(0.05)
    checks.check(server.call(REQUEST)[:2] == first[:2], "an equal request is not answered while the worker is busy")
    checks.check(server.call({**REQUEST, "model": "gtp2"})[:2] == wrong[:2] and wrong[0] == 400, "an equal wrong request gets another answer")
    os.kill(worker, signal.SIGCONT)
    for thread in threads:
        thread.join()
    checks.check(sorted(results) == [200, 503, 503], f"three requests for one worker that stands still: {results}")
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
        server = Server("--workers", "1", "--memory", "64", "--seconds", "60")
        status = server.call(LARGE)[0]
        checks.check(status == 500, f"a request beyond its memory: {status}")
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
    thread, results, _ = begun(checks, server)
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
    for check in (check_answers, check_wrong, check_files, check_poured, check_full, check_pipelined, check_hostile_connections):
        check(checks, server)
    server.end()
    check_names(checks)
    check_slow(checks)
    check_workers(checks)
    if not SANITIZED:   # whose quarantine grows
        check_flat(checks)
    check_lanes(checks)
    check_cache(checks)
    check_limits(checks)
    check_end(checks)
    checks.finish()


if __name__ == "__main__":
    main()
