# Paths that start at a moved folder's descriptor.
import os
fd = os.open("src", os.O_RDONLY)
os.rename("src", "moved")
os.unlink("main.rs", dir_fd=fd)
os.mkdir("new", dir_fd=fd)
os.link("README.md", "linked", dst_dir_fd=fd)
os.chdir("moved")
open("../README.md", "a").write("more")
os.utime("linked", (1, 1))
