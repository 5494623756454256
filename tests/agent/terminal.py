"""A terminal for a program: what comes on stdin is typed, what the program writes goes to stdout.

Takes a folder, lines, columns and a command. Each line of stdin is a JSON object: `keys` are typed,
`size` is a new size, `signal` goes to the program. The folder gets `pid`, and `code` at the end.
"""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios

folder, lines, columns, *command = sys.argv[1:]
leader, follower = pty.openpty()


def resize(lines, columns):
    fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def keep(name, value):
    path = os.path.join(folder, name)
    with open(path + ".new", "w") as file:
        file.write(str(value))
    os.rename(path + ".new", path)


resize(int(lines), int(columns))
program = subprocess.Popen(
    command,
    stdin=follower,
    stdout=follower,
    stderr=follower,
    start_new_session=True,
    preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
)
os.close(follower)
keep("pid", program.pid)
rest = b""
sources = [leader, 0]
while True:
    ready, _, _ = select.select(sources, [], [])
    if leader in ready:
        try:
            shown = os.read(leader, 65536)
        except OSError:
            shown = b""
        if not shown:
            break
        while shown:
            shown = shown[os.write(1, shown) :]
    if 0 in ready:
        more = os.read(0, 65536)
        if not more:
            # The test is over.
            program.send_signal(signal.SIGKILL)
            break
        *wanted, rest = (rest + more).split(b"\n")
        for line in wanted:
            todo = json.loads(line)
            keys = todo.get("keys", "").encode()
            while keys:
                keys = keys[os.write(leader, keys) :]
            if "size" in todo:
                resize(*todo["size"])
            if "signal" in todo:
                program.send_signal(todo["signal"])
code = program.wait()
keep("code", code)
