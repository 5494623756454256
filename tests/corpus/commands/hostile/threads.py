# Several threads write and rename at the same time.
import os, threading
def act(number):
    for turn in range(30):
        name = f"t{number}-{turn}"
        open(name, "w").write("x")
        os.replace(name, "README.md" if turn % 2 else "src/main.rs")
threads = [threading.Thread(target=act, args=(n,)) for n in range(6)]
[t.start() for t in threads]
[t.join() for t in threads]
