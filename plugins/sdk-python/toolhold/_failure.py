"""Failures of a call, and what becomes of exceptions."""

import errno
import json


class Failure(Exception):
    """A call that failed, and would fail again in the same way.

    message: for the model: what was wrong with which value.
    code: names the case for programs, as `not-found`.
    suggestion: what to try instead.
    retry_after: seconds to wait before another try.
    content: the parts of an answer that there are in spite of the failure.
    structured: a value for programs.
    """

    category = "permanent-failure"

    def __init__(self, message, *, code=None, suggestion=None, retry_after=None, content=(), structured=None, meta=None):
        super().__init__(message)
        self.message = message
        self.code = code
        self.suggestion = suggestion
        self.retry_after = retry_after
        self.content = list(content)
        self.structured = structured
        self.meta = meta


class InvalidParameters(Failure):
    """Arguments that fit the schema and still aren't valid. The caller fixes them."""

    category = "invalid-parameters"


class TypeMismatch(Failure):
    """An argument of another type than the tool takes."""

    category = "type-mismatch"


class RateLimited(Failure):
    """The other side wants fewer requests. The caller may try again."""

    category = "rate-limited"


class ServerError(Failure):
    """The other side failed. The caller may try again."""

    category = "server-error"


class NetworkError(Failure):
    """The other side can't be reached. The caller may try again."""

    category = "network-error"


class TimeLimit(Failure):
    """It took too long. The caller may try again."""

    category = "timeout"


# What errors of the operating system mean, in the words of Toolhold's own tools.
_ERRORS = {
    errno.ENOENT: (Failure, "not-found", "not found"),
    errno.EACCES: (Failure, "not-permitted", "not permitted"),
    errno.EPERM: (Failure, "not-permitted", "not permitted"),
    errno.EEXIST: (Failure, "exists", "exists already"),
    errno.EISDIR: (Failure, "is-a-directory", "is a directory"),
    errno.ENOTDIR: (Failure, "not-a-directory", "a part of the path is not a directory"),
    errno.ENOTEMPTY: (Failure, "not-empty", "the directory is not empty"),
    errno.EROFS: (Failure, "read-only", "read-only file system"),
    errno.ENOSPC: (Failure, "no-space", "no space left"),
    errno.EDQUOT: (Failure, "no-space", "no space left"),
    errno.EFBIG: (Failure, "too-large", "too large"),
    errno.ENAMETOOLONG: (Failure, "invalid-name", "the file name isn't valid"),
    errno.ECONNREFUSED: (NetworkError, "refused", "connection refused"),
    errno.ECONNRESET: (NetworkError, "disconnected", "connection lost"),
    errno.EHOSTUNREACH: (NetworkError, "unreachable", "not reachable"),
    errno.ETIMEDOUT: (TimeLimit, "timed-out", "took too long"),
}


def from_exception(error):
    """The failure that an exception becomes: itself, or one that says its type and message."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, OSError) and error.errno in _ERRORS:
        kind, code, words = _ERRORS[error.errno]
        names = " and ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
        return kind(f"{names}: {words}" if names else words, code=code)
    if isinstance(error, json.JSONDecodeError):
        return Failure(str(error), code="json")
    if isinstance(error, UnicodeDecodeError):
        return Failure(f"not {error.encoding}: {error.reason} at byte {error.start}", code="invalid-data")
    name, message = type(error).__name__, str(error)
    return Failure(f"{name}: {message}" if message else name, code="exception")
