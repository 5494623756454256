"""Write tools for Toolhold in Python.

A tool is a function with the decorator `tool`. Its annotations are the schema of its arguments, its
docstring is the description that models read, and an exception is a failure of the call.

    from typing import Annotated
    from toolhold import reads_path, tool

    @tool(promises=["read-only"])
    def size(path: Annotated[str, "The file.", reads_path]) -> int:
        '''Says how many bytes a file has.'''
        with open(path, "rb") as file:
            return len(file.read())
"""

from . import call, config, http, index, log, parts, process, schedule, search, secrets, service, store
from ._failure import (
    Failure,
    InvalidParameters,
    NetworkError,
    RateLimited,
    ServerError,
    TimeLimit,
    TypeMismatch,
)
from ._output import Content, Output
from ._schema import (
    Alias,
    Attachment,
    Examples,
    Glob,
    Limits,
    Role,
    bare_text,
    changes_name,
    needs_network,
    reads_path,
    seconds,
    subject,
    writes_path,
)
from ._tool import Tool, tool, tools

__all__ = [
    "Alias",
    "Attachment",
    "Content",
    "Examples",
    "Failure",
    "Glob",
    "InvalidParameters",
    "Limits",
    "NetworkError",
    "Output",
    "RateLimited",
    "Role",
    "ServerError",
    "TimeLimit",
    "Tool",
    "TypeMismatch",
    "bare_text",
    "call",
    "changes_name",
    "config",
    "http",
    "index",
    "log",
    "needs_network",
    "parts",
    "process",
    "reads_path",
    "schedule",
    "search",
    "seconds",
    "secrets",
    "service",
    "store",
    "subject",
    "tool",
    "tools",
    "writes_path",
]
