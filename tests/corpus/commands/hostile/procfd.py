# Paths through /proc.
import os
open("/proc/self/cwd/README.md", "w").write("lost")
os.remove(f"/proc/{os.getpid()}/root{os.getcwd()}/run.sh")
os.chmod("/proc/thread-self/cwd/evil.mk", 0)
