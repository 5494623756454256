# A file is overwritten by sendfile.
import os
os.sendfile(os.open("README.md", os.O_WRONLY), os.open("evil.py", os.O_RDONLY), 0, 10)
