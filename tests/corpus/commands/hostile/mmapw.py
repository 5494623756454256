# A file is changed through memory.
import mmap
with open("README.md", "r+b") as file:
    memory = mmap.mmap(file.fileno(), 0)
    memory[0:4] = b"lost"
    memory.flush()
