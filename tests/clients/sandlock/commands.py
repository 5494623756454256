"""Times commands in sandlock's sandbox, which may reach one host. Arguments: the host with its port, the milliseconds of rest before
each run, and the command.

Each line on stdin is a number of consecutive runs. For each, it prints a line: their times in nanoseconds, as JSON. The package is used
as its documentation shows: a sandbox is made for each command.
"""

import json
import sys
import time

from sandlock import Sandbox

host, rest, command = sys.argv[1], int(sys.argv[2]) / 1000, sys.argv[3]
readable = ["/usr", "/bin", "/lib", "/lib64", "/opt", "/etc", "/proc", "/dev"]


def run():
    """One run: how long it took."""
    time.sleep(rest)
    start = time.perf_counter_ns()
    result = Sandbox(fs_readable=readable, fs_writable=["."], net_allow=[host]).run(["bash", "-c", command])
    took = time.perf_counter_ns() - start
    if not result.success:
        raise SystemExit(f"{command} failed: {result}")
    return took


for line in sys.stdin:
    print(json.dumps([run() for _ in range(int(line))]), flush=True)
