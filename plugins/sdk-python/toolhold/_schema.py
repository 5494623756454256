"""JSON Schemas from annotations, and arguments from JSON."""

import dataclasses
import enum
import inspect
import types
import typing

from ._failure import InvalidParameters, TypeMismatch
from ._output import Content

NONE = type(None)


# What may stand in `Annotated` beside the description.


@dataclasses.dataclass(frozen=True)
class subject:
    """The argument names what a call acts on. kind: path, name, url, command or text. access: read or write."""

    kind: str
    access: str = "write"


reads_path = subject("path", "read")
writes_path = subject("path", "write")
changes_name = subject("name", "write")


@dataclasses.dataclass(frozen=True)
class Alias:
    """Another name that callers use for the argument."""

    name: str


@dataclasses.dataclass(frozen=True)
class Role:
    """What the host does with the argument: `timeout`, `network`, `text`, `glob`."""

    name: str
    base: str | None = None


seconds = Role("timeout")
needs_network = Role("network")
bare_text = Role("text")


def Glob(base):
    """The argument is a glob over paths, which starts at the folder that the argument `base` names."""
    return Role("glob", base)


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bounds of a number, or of the length of a text or a list."""

    min: float | None = None
    max: float | None = None


class Examples:
    """Values that models read as examples, and that `toolhold plugin test` calls the tool with."""

    def __init__(self, *values):
        self.values = list(values)


class Attachment(Content):
    """Content that travels beside the JSON: the type of an argument that is large or binary."""


_ATTACHMENT = {
    "type": "object",
    "properties": {"$attachment": {"type": "integer", "minimum": 0}},
    "required": ["$attachment"],
    "additionalProperties": False,
}
_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean"}


def of_type(annotation, where):
    """The JSON Schema of a type. `where` names it in errors, which its author reads."""
    annotation, description, extras = _taken_apart(annotation)
    schema = _bare(annotation, where)
    for extra in extras:
        if isinstance(extra, Limits):
            schema.update(_limits(schema["type"], extra, where))
        elif isinstance(extra, Examples):
            schema["examples"] = extra.values
    return {**schema, "description": description} if description else schema


def _bare(annotation, where):
    if annotation in _SIMPLE:
        return {"type": _SIMPLE[annotation]}
    if annotation is Attachment:
        return dict(_ATTACHMENT)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return _one_of(list(arguments), where)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _one_of([member.value for member in annotation], where)
    if origin is list and arguments:
        return {"type": "array", "items": of_type(arguments[0], f"{where}[]")}
    if origin is dict and arguments and arguments[0] is str:
        return {"type": "object", "additionalProperties": of_type(arguments[1], f"{where}{{}}")}
    if dataclasses.is_dataclass(annotation):
        return of_fields(_fields(annotation), where)
    raise TypeError(
        f"{where}: {_shown(annotation)} has no JSON Schema. Use str, int, float, bool, list[T], "
        "dict[str, T], Literal, an Enum, a dataclass or Attachment; `T | None` for what may be left out"
    )


def of_fields(fields, where):
    """The JSON Schema of an object with these fields: (name, annotation, default or `inspect.Parameter.empty`)."""
    properties, required = {}, []
    for name, annotation, default in fields:
        if annotation is inspect.Parameter.empty:
            place = f"{where}.{name}" if where else name
            raise TypeError(f"{place} has no annotation, so its JSON Schema is unknown")
        inner, optional = _without_none(annotation)
        schema = of_type(inner, f"{where}.{name}" if where else name)
        if default is inspect.Parameter.empty and not optional:
            required.append(name)
        elif default not in (inspect.Parameter.empty, None):
            schema["default"] = default.value if isinstance(default, enum.Enum) else default
        properties[name] = schema
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def extras(annotation):
    """What stands in `Annotated` beside the description, also behind `| None`."""
    return _taken_apart(_without_none(annotation)[0])[2]


def decode(annotation, value, where, attachments=()):
    """A value of JSON as the annotated type. The host has checked it already; a test may not have."""
    annotation, optional = _without_none(annotation)
    if value is None and optional:
        return None
    annotation = _taken_apart(annotation)[0]
    if annotation is Attachment:
        index = value.get("$attachment") if isinstance(value, dict) else None
        if type(index) is not int or not 0 <= index < len(attachments):
            raise InvalidParameters(f"{where} has to name an attachment; the call has {len(attachments)}, counted from 0")
        return attachments[index]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        if value not in arguments:
            raise InvalidParameters(f"{where} is {value!r}; it has to be one of {list(arguments)}")
        return value
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        try:
            return annotation(value)
        except ValueError:
            raise InvalidParameters(f"{where} is {value!r}; it has to be one of {[m.value for m in annotation]}") from None
    if origin is list and isinstance(value, list):
        return [decode(arguments[0], each, f"{where}[{index}]", attachments) for index, each in enumerate(value)]
    if origin is dict and isinstance(value, dict):
        return {key: decode(arguments[1], each, f"{where}.{key}", attachments) for key, each in value.items()}
    if dataclasses.is_dataclass(annotation) and isinstance(value, dict):
        return annotation(**decode_fields(_fields(annotation), value, where, attachments))
    if annotation is float and type(value) in (int, float):
        return float(value)
    if annotation is int and type(value) is float and value.is_integer():
        return int(value)
    if annotation in (str, bool, int) and type(value) is annotation:
        return value
    raise TypeMismatch(f"{where} is {_kind(value)}; it has to be {_shown(annotation)}")


def decode_fields(fields, values, where, attachments=()):
    """The values of an object as keyword arguments. What is missing keeps its default, or is None."""
    decoded, known = {}, set()
    for name, annotation, default in fields:
        known.add(name)
        path = f"{where}.{name}" if where else name
        if name in values:
            decoded[name] = decode(annotation, values[name], path, attachments)
        elif default is inspect.Parameter.empty:
            if not _without_none(annotation)[1]:
                raise InvalidParameters(f"{path} is missing")
            decoded[name] = None
    unknown = [name for name in values if name not in known]
    if unknown:
        raise InvalidParameters(f"there is no argument {unknown[0]}; there are: {', '.join(sorted(known))}")
    return decoded


def parameters(function):
    """The fields of a function's parameters."""
    hints = typing.get_type_hints(function, include_extras=True)
    fields = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{function.__name__}: {parameter} can't be an argument of a tool; give each argument a name")
        fields.append((name, hints.get(name, inspect.Parameter.empty), parameter.default))
    return fields, hints.get("return")


def _fields(type_):
    hints = typing.get_type_hints(type_, include_extras=True)
    empty = inspect.Parameter.empty
    fields = []
    for field in dataclasses.fields(type_):
        default = field.default
        if default is dataclasses.MISSING:
            default = empty if field.default_factory is dataclasses.MISSING else field.default_factory()
        fields.append((field.name, hints[field.name], default))
    return fields


def _taken_apart(annotation):
    """The type, the description and the rest of an `Annotated`."""
    if typing.get_origin(annotation) is not typing.Annotated:
        return annotation, None, ()
    inner, *rest = typing.get_args(annotation)
    texts = [each for each in rest if isinstance(each, str)]
    return inner, texts[0] if texts else None, tuple(each for each in rest if not isinstance(each, str))


def _without_none(annotation):
    """The type without `None`, and whether it had one. An `Annotated` around the choice is kept."""
    if typing.get_origin(annotation) is typing.Annotated:
        inner, *rest = typing.get_args(annotation)
        bare, optional = _without_none(inner)
        return typing.Annotated[(bare, *rest)], optional
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        others = [each for each in typing.get_args(annotation) if each is not NONE]
        if len(others) == 1 and len(others) < len(typing.get_args(annotation)):
            return others[0], True
    return annotation, False


def _one_of(values, where):
    kinds = {type(value) for value in values}
    if len(kinds) != 1 or (kind := kinds.pop()) not in _SIMPLE:
        raise TypeError(f"{where}: the values {values} have to be of one type: str, int, float or bool")
    return {"type": _SIMPLE[kind], "enum": values}


def _limits(kind, limits, where):
    names = {
        "string": ("minLength", "maxLength"),
        "array": ("minItems", "maxItems"),
        "integer": ("minimum", "maximum"),
        "number": ("minimum", "maximum"),
    }
    if kind not in names:
        raise TypeError(f"{where}: Limits are for numbers, texts and lists")
    return {name: value for name, value in zip(names[kind], (limits.min, limits.max)) if value is not None}


def _shown(annotation):
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).removeprefix("typing.")


def _kind(value):
    names = {NONE: "null", bool: "a bool", int: "an int", float: "a float", str: "a str", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)
