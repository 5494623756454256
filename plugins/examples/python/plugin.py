"""A plugin with one tool."""

from dataclasses import dataclass
from typing import Annotated

from toolhold import reads_path, tool


@dataclass
class Counts:
    lines: int
    words: int
    bytes: int


@tool(promises=["read-only", "closed-world"])
def word_count(path: Annotated[str, "The text file.", reads_path]) -> Counts:
    """Counts the lines, words and bytes of a text file. Fails if the file is missing or is not UTF-8."""
    with open(path, "rb") as file:
        data = file.read()
    text = data.decode()
    return Counts(lines=len(text.splitlines()), words=len(text.split()), bytes=len(data))
