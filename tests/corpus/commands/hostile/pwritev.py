# Writes at a position, through a duplicate and after the first close.
import os
fd = os.open("README.md", os.O_RDWR)
other = os.dup(fd)
os.close(fd)
os.pwrite(other, b"lost", 2)
os.pwritev(other, [b"a", b"b"], 0)
