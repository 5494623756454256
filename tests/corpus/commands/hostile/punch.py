# A hole is punched.
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open("README.md", os.O_RDWR)
libc.fallocate(fd, 3, ctypes.c_long(0), ctypes.c_long(5))
os.posix_fallocate(fd, 0, 100)
