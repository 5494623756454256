# A daemon writes after its parent has ended.
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(0.2)
        open("README.md", "w").write("lost")
    os._exit(0)
