# A child of a child, with another working directory and vfork.
import os, subprocess
subprocess.Popen(["sh", "-c", "cd src && echo lost > main.rs && rm ../README.md"]).wait()
os.posix_spawn("/bin/sh", ["sh", "-c", "rm -f run.sh; ln -s src s; echo y > s/main.rs"], {})
os.wait()
