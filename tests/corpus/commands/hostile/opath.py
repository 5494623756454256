# A descriptor without rights is opened again.
import os
fd = os.open("README.md", os.O_PATH)
other = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_TRUNC)
os.write(other, b"lost")
link = os.open("src", os.O_PATH | os.O_DIRECTORY)
os.unlink("main.rs", dir_fd=link)
