"""The decorator for tools, and how they are called."""

import json
import traceback

from . import _host, _schema
from ._failure import Failure, InvalidParameters, from_exception
from ._output import Content, from_value, to_json

_TOOLS = {}

# The bytes of a traceback that the log gets. The host keeps 4 KiB of a message.
_MAX_TRACEBACK = 3500


PROMISES = ("read-only", "additive", "idempotent", "closed-world", "cacheable")


class Tool:
    """A function that models call. Called as a function, it is the function, for unit tests."""

    def __init__(self, function, **settings):
        self.function = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.name = settings["name"] or function.__name__.lower()
        self.title = settings["title"]
        self.aliases = list(settings["aliases"])
        self.promises = list(settings["promises"])
        for promise in self.promises:
            if promise not in PROMISES:
                raise ValueError(f"{self.name}: {promise!r} is no promise; there are: {', '.join(PROMISES)}")
        self.answers_in = settings["answers_in"]
        self.fence = settings["fence"]
        self.meta = settings["meta"]
        self.description = settings["description"] or _paragraphs(function.__doc__)
        if not self.description:
            raise TypeError(f"{self.name}: a docstring is missing: models choose tools by their description")
        self.fields, returned = _schema.parameters(function)
        self.input_schema = _schema.of_fields(self.fields, "")
        self.output_schema = settings["output_schema"] or _output_schema(returned)
        self.subjects, self.arguments = [], []
        for name, annotation, _default in self.fields:
            self._read_extras(name, annotation)

    def __call__(self, *arguments, **named):
        return self.function(*arguments, **named)

    def _read_extras(self, name, annotation):
        aliases, roles, base = [], [], None
        extras = list(_schema.extras(annotation))
        if _schema._without_none(annotation)[0] is _schema.Attachment:
            extras.append(_schema.Role("attachment"))
        for extra in extras:
            if isinstance(extra, _schema.subject):
                self.subjects.append((f"/{name}", extra.kind, extra.access))
            elif isinstance(extra, _schema.Alias):
                aliases.append(extra.name)
            elif isinstance(extra, _schema.Role):
                roles.append(extra.name)
                base = extra.base or base
        if aliases or roles:
            self.arguments.append((name, aliases, roles, base))


def tool(
    function=None,
    /,
    *,
    name=None,
    title=None,
    description=None,
    aliases=(),
    promises=(),
    output_schema=None,
    answers_in=None,
    fence=None,
    meta=None,
):
    """Makes a function a tool.

    Its annotations are the schema of its arguments, and its docstring is its description. What it
    returns is the answer: a str is text, bytes are bytes, an `Output` is as it says, and anything
    else is JSON. An exception is a failure.

    promises: `read-only` (the host enforces it), `additive`, `idempotent`, `closed-world`, `cacheable`.
    answers_in: `text` or `structured`: what a model reads of an answer that has both.
    """

    def make(function):
        made = Tool(
            function,
            name=name,
            title=title,
            description=description,
            aliases=aliases,
            promises=promises,
            output_schema=output_schema,
            answers_in=answers_in,
            fence=fence,
            meta=meta,
        )
        if made.name in _TOOLS:
            raise TypeError(f"there are two tools {made.name}")
        _TOOLS[made.name] = made
        return made

    return make(function) if function else make


def tools():
    """All tools, in the order of their definition."""
    return list(_TOOLS.values())


def run(name, arguments, attachments=()):
    """Runs a call with its arguments as JSON. Returns an Output; raises nothing but a Failure."""
    try:
        if name not in _TOOLS:
            raise InvalidParameters(f"this plugin has no tool {name}")
        called = _TOOLS[name]
        values = _schema.decode_fields(called.fields, json.loads(arguments), "", attachments)
        output = from_value(called.function(**values))
        # What has no form in JSON is the tool's mistake too, and reaches the caller as such.
        if output.structured is not None:
            output.structured = to_json(output.structured)
            if not output.content:
                # The same for who reads texts only.
                output.content = [Content(text=output.structured, media_type="application/json")]
        return output
    except Failure:
        raise
    except (Exception, SystemExit) as error:
        failure = from_exception(error)
        # A missing file is no mistake of the plugin's, so it is no error for the operator.
        level = "error" if failure.code == "exception" else "debug"
        trace = "".join(traceback.format_exception(error)).encode()[-_MAX_TRACEBACK:].decode(errors="ignore")
        _host.write_log(level, trace)
        raise failure from error


def _output_schema(returned):
    """The schema of what a function returns, if that is an object with known fields."""
    import dataclasses

    is_object = dataclasses.is_dataclass(returned) and returned.__module__ != "toolhold._output"
    return _schema.of_type(returned, "the answer") if is_object else None


def _paragraphs(text):
    """A docstring without its line breaks, which mean nothing to a model, but with its paragraphs."""
    blocks = (text or "").strip().split("\n\n")
    return "\n\n".join(" ".join(line.strip() for line in block.splitlines()) for block in blocks).strip()
