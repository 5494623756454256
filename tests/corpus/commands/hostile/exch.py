# Two files, and a file and a folder, change places.
import ctypes
libc = ctypes.CDLL(None)
libc.renameat2(-100, b"README.md", -100, b"run.sh", 2)
libc.renameat2(-100, b"src", -100, b"untracked.txt", 2)
libc.renameat2(-100, b"evil.mk", -100, b"new.mk", 1)
