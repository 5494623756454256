"""Pure computation in components that the plugin brings along. Ask for `parts` in the manifest, and name them there.

In unit tests, `testing.standin.parts` has a function from bytes to bytes for each part.
"""

from . import _host
from ._failure import Failure, from_exception


def run(part, inputs):
    """Runs a part on each of the inputs, at most 4,096, several at a time. The results have their order.

    A result is bytes, or the Failure of an input that failed: it isn't raised, since the others have answers.
    """
    part, inputs = _host.as_text(part, "a part"), [_host.as_bytes(each, "an input") for each in inputs]
    if not _host.IN_COMPONENT:
        return [_run_standin(part, each) for each in inputs]
    results = _host.imported("parts", "parts").run(part, inputs)
    return [_result(each.value) for each in results]


def _result(value):
    return value if isinstance(value, bytes) else Failure(value.message, code=value.code)


def _run_standin(part, input):
    function = _host.standin.parts.get(part)
    if function is None:
        return Failure(f"the part `{part}` is missing", code="unavailable")
    try:
        return function(input)
    except Exception as error:
        return from_exception(error)
