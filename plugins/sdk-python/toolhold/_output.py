"""Answers of tools."""

import dataclasses
import enum
import json


@dataclasses.dataclass
class Content:
    """One part of an answer: a text, bytes, or a link that the caller may read through the host."""

    text: str | None = None
    bytes: "bytes | None" = None
    link: str | None = None
    media_type: str | None = None
    meta: dict | None = None

    def __post_init__(self):
        if sum(part is not None for part in (self.text, self.bytes, self.link)) != 1:
            raise ValueError("a Content has one of text, bytes and link")


@dataclasses.dataclass
class Output:
    """An answer, where a tool has more to say than a value.

    content: texts, bytes and `Content`s.
    structured: a value for programs. It has to match the tool's output schema.
    after_emitted: whether what `toolhold.call.emit` sent comes first in the answer.
    """

    content: list = dataclasses.field(default_factory=list)
    structured: object = None
    after_emitted: bool = False
    meta: dict | None = None


def part(value):
    """A part of an answer from what authors write."""
    if isinstance(value, Content):
        return value
    if isinstance(value, str):
        return Content(text=value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return Content(bytes=bytes(value))
    raise TypeError(f"a part of an answer is a str, bytes or a Content, not {type(value).__name__}")


def from_value(value):
    """What a tool returned, as an Output: a str is text, bytes are bytes, anything else is JSON."""
    if value is None:
        return Output()
    if isinstance(value, Output):
        return dataclasses.replace(value, content=[part(each) for each in value.content])
    if isinstance(value, (str, bytes, bytearray, memoryview, Content)):
        return Output(content=[part(value)])
    return Output(structured=value)


def to_json(value):
    """A value as JSON. Dataclasses become objects, enums their values, sets lists."""
    return json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _plain(value):
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"a {type(value).__name__} has no form in JSON")
