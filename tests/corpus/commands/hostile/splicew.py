# A file is overwritten by splice.
import os
r, w = os.pipe()
os.write(w, b"lost")
os.splice(r, os.open("README.md", os.O_WRONLY), 4)
