"""The exports of a component. `toolhold plugin build` names this module; plugins don't."""

import json

from componentize_py_types import Err
from wit_world.exports import tools as exported
from wit_world.imports import toolhold_tool_types as types

from . import _host, _tool
from ._failure import from_exception
from ._output import part

# At most this much of a message reaches the host.
_MAX_MESSAGE = 4096


class Tools:
    """The interface `toolhold:tool/tools`."""

    def list_tools(self):
        return [_definition(tool) for tool in _tool.tools()]

    def call_tool(self, call):
        try:
            _host.call_meta = json.loads(call.meta) if call.meta else {}
            output = _tool.run(call.tool, call.arguments, [_host.from_wit(each) for each in call.attachments])
            content = [_host.to_wit(each) for each in output.content]
            return types.Output(content, output.structured, output.after_emitted, _json(output.meta))
        except Exception as error:
            failed = from_exception(error)
        try:
            failure = _failure(failed)
        except Exception as error:
            # What the failure carries has no form in JSON.
            failure = _failure(from_exception(error))
        raise Err(failure)


def _definition(tool):
    return exported.Definition(
        name=tool.name,
        aliases=tool.aliases,
        title=tool.title,
        description=tool.description,
        input_schema=json.dumps(tool.input_schema),
        output_schema=_json(tool.output_schema),
        promises=tool.promises,
        subjects=[exported.Subject(*each) for each in tool.subjects],
        arguments=[exported.Argument(name, aliases, roles, base, [], None) for name, aliases, roles, base in tool.arguments],
        preview=None,
        answers_in=tool.answers_in,
        fence=tool.fence,
        meta=_json(tool.meta),
    )


def _failure(failure):
    message = failure.message.encode(errors="replace")[:_MAX_MESSAGE].decode(errors="ignore")
    return types.Failure(
        category=types.Category[failure.category.upper().replace("-", "_")],
        code=failure.code,
        message=message,
        suggestion=failure.suggestion,
        retry_after_ms=None if failure.retry_after is None else int(failure.retry_after * 1000),
        content=[_host.to_wit(part(each)) for each in failure.content],
        structured=_json(failure.structured),
        meta=_json(failure.meta),
    )


def _json(value):
    return None if value is None else json.dumps(value)
