# Files that run later, by other names and calls.
import ctypes, os
os.makedirs(".github/work", exist_ok=True)
os.rename(".github/work", ".github/workflows")
fd = os.open(".github/workflows", os.O_RDONLY)
os.close(os.open("x.yml", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
fd = os.open(".", os.O_TMPFILE | os.O_RDWR)
os.write(fd, b"./evil.sh")
ctypes.CDLL(None).linkat(-100, b"/proc/self/fd/%d" % fd, -100, b".envrc", 0x400)
