"""Ranked search in documents of the plugin's own, which outlive its calls. Ask for `index` in the manifest.

In unit tests, documents are ranked by the number of words that they share with the query.
"""

import array
import dataclasses
import re

from . import _host


@dataclasses.dataclass
class Document:
    """A document, which replaces the one with the same key. The text is searched for words, the data isn't searched.

    tags: what a query can ask for exactly. vector: whole numbers from -128 to 127.
    """

    key: str
    text: str = ""
    tags: list = dataclasses.field(default_factory=list)
    vector: list | None = None
    data: bytes = b""


@dataclasses.dataclass
class Hit:
    """A document that was found. score: higher is better. found_by: `words`, `vector` or both."""

    key: str
    score: float
    found_by: list


def put(*documents):
    """Writes documents, all of them or none: at most 1,000."""
    documents = [_checked(each) for each in documents]
    if not _host.IN_COMPONENT:
        _host.standin.index.update((each.key, each) for each in documents)
        return
    index = _interface()
    made = [
        index.Document(each.key, each.text, each.tags, _signed(each.vector), each.data, None) for each in documents
    ]
    _host.checked(index.put, made)


def delete(*keys):
    """Deletes documents, all of them or none: at most 1,000. They need not exist."""
    keys = _texts(keys, "a key")
    if _host.IN_COMPONENT:
        _host.checked(_interface().delete, keys)
        return
    for key in keys:
        _host.standin.index.pop(key, None)


def delete_prefix(prefix):
    """Deletes the documents whose keys begin with the prefix, step by step, and returns their number."""
    prefix, deleted = _host.as_text(prefix, "a prefix"), 0
    if not _host.IN_COMPONENT:
        keys = [key for key in _host.standin.index if key.startswith(prefix)]
        delete(*keys)
        return len(keys)
    while step := _host.checked(_interface().delete_prefix, prefix):
        deleted += step
    return deleted


def get(*keys):
    """The documents with these keys, in their order. None: there is none."""
    keys = _texts(keys, "a key")
    if not _host.IN_COMPONENT:
        return [_host.standin.index.get(key) for key in keys]
    found = _host.checked(_interface().get, keys)
    return [each and _document(each) for each in found]


def items(prefix=""):
    """The documents whose keys begin with the prefix, sorted by key: objects with key, tags and data."""
    prefix = _host.as_text(prefix, "a prefix")
    if not _host.IN_COMPONENT:
        yield from (each for key, each in sorted(_host.standin.index.items()) if key.startswith(prefix))
        return
    cursor = None
    while True:
        page = _host.checked(_interface().list, prefix, cursor, 1000)
        yield from page.entries
        cursor = page.cursor
        if cursor is None:
            return


def search(words="", *, tags=(), prefix="", vector=None, limit=10):
    """The best documents, the best first: those with one of the words or near the vector, and with all tags.

    Without words and without a vector, it finds the latest documents.
    """
    words, prefix = _host.as_text(words, "the words"), _host.as_text(prefix, "a prefix")
    tags, vector = _texts(tags, "a tag"), _vector(vector)
    if not _host.IN_COMPONENT:
        return _search_standin(words, tags, prefix, vector)[:limit]
    index = _interface()
    found = _host.checked(index.search, index.Query(words, tags, prefix, _signed(vector), limit, None))
    return [Hit(each.key, each.score, each.found_by) for each in found]


def _search_standin(words, tags, prefix, vector):
    asked, hits = set(_words(words)), []
    for each in reversed(_host.standin.index.values()):
        if not each.key.startswith(prefix) or not set(tags) <= set(each.tags):
            continue
        shared = len(asked & set(_words(each.text)))
        near = sum(a * b for a, b in zip(vector or [], each.vector or [])) > 0
        if shared or near or (not asked and vector is None):
            hits.append(Hit(each.key, float(shared), ["words"] * (shared > 0) + ["vector"] * near))
    return sorted(hits, key=lambda hit: -hit.score)


def _words(text):
    return re.findall(r"\w+", text.lower())


def _checked(document):
    return Document(
        _host.as_text(document.key, "a key"),
        _host.as_text(document.text, "a text"),
        _texts(document.tags, "a tag"),
        _vector(document.vector),
        _host.as_bytes(document.data, "the data"),
    )


def _document(found):
    vector = None if found.vector is None else list(array.array("b", found.vector))
    return Document(found.key, found.text, found.tags, vector, found.data)


def _signed(vector):
    """A vector as the bindings have it: they take a list of signed bytes as bytes."""
    return None if vector is None else array.array("b", vector).tobytes()


def _texts(values, what):
    if isinstance(values, str):
        raise TypeError(f"{what} stands in a list: [{values!r}]")
    return [_host.as_text(each, what) for each in values]


def _vector(vector):
    if vector is None:
        return None
    if all(isinstance(each, int) and -128 <= each <= 127 for each in vector):
        return list(vector)
    raise TypeError("a vector has whole numbers from -128 to 127")


def _interface():
    return _host.imported("index", "index")
