"""A small client in Python that times calls. Arguments: the parameters of the call as JSON, and the server's command.

Each line on stdin is a number of consecutive calls. For each, it prints a line: their times in nanoseconds, as JSON."""

import json
import subprocess
import sys
import time

call = json.loads(sys.argv[1])
server = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
last = 0


def send(message):
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    server.stdin.flush()


def ask(method, params):
    """One request and its answer. A server may send notifications before it."""
    global last
    last += 1
    send({"id": last, "method": method, "params": params})
    while True:
        answer = json.loads(server.stdout.readline())
        if answer.get("id") == last:
            return answer["result"]


ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "time_calls", "version": "1"}})
send({"method": "notifications/initialized"})
for line in sys.stdin:
    times = []
    for _ in range(int(line)):
        begin = time.perf_counter_ns()
        answer = ask("tools/call", call)
        times.append(time.perf_counter_ns() - begin)
        assert not answer.get("isError"), answer
    print(json.dumps(times), flush=True)
server.stdin.close()
server.wait()
