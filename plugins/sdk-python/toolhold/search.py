"""Finds files and matches text at native speed, in the files that the plugin may read. Ask for `search`."""

from . import _host


def find(root, globs=(), *, ignore_rules=True, files_only=True, max_depth=None, limit=10_000):
    """The entries below a folder, sorted by path: objects with path, kind, size and modified_ms."""
    search = _interface()
    return _host.checked(search.find, _scope(search, root, globs, ignore_rules, files_only, max_depth), limit).items


def grep(root, regex, globs=(), *, case_sensitive=True, multiline=False, before=0, after=0, ignore_rules=True, limit=10_000):
    """The matching lines, with lines of context: objects with path, number, text and is_match."""
    search = _interface()
    pattern = search.LinePattern(regex, case_sensitive, multiline, before, after, None)
    return _host.checked(search.grep, _scope(search, root, globs, ignore_rules, True, None), pattern, limit).items


def _scope(search, root, globs, ignore_rules, files_only, max_depth):
    return search.Scope(str(root), list(globs), ignore_rules, files_only, max_depth, None)


def _interface():
    return _host.imported("search", "search")
