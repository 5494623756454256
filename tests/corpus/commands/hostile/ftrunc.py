# A file that was opened without O_TRUNC is truncated.
import os
os.ftruncate(os.open("README.md", os.O_RDWR), 3)
os.truncate(os.open("src/main.rs", os.O_RDWR), 1)
