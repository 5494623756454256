# A file is overwritten by copy_file_range.
import os
source = os.open("evil.py", os.O_RDONLY)
target = os.open("README.md", os.O_WRONLY)
os.copy_file_range(source, target, 10)
