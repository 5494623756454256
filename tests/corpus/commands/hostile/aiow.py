# An asynchronous write of the kernel's.
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
context = ctypes.c_ulong(0)
libc.syscall(206, 1, ctypes.byref(context))
fd = os.open("README.md", os.O_RDWR)
data = ctypes.create_string_buffer(b"lost")
block = ctypes.create_string_buffer(struct.pack("QIIHhIQQqQII", 0, 0, 0, 1, 0, fd, ctypes.addressof(data), 4, 0, 0, 0, 0))
pointers = (ctypes.c_void_p * 1)(ctypes.addressof(block))
libc.syscall(209, context, 1, pointers)
