"""Programs of the machine, which the operator grants. Ask for `process` in the manifest.

They run outside WebAssembly, in a sandbox with the plugin's directories. In unit tests they run
without a sandbox.
"""

import dataclasses

from . import _host
from ._failure import Failure


@dataclasses.dataclass
class Finished:
    """What came of a command. exit_code: None if the host ended it, and `ending` says why."""

    exit_code: int | None
    ending: str
    notices: list
    stdout: bytes
    stderr: bytes
    stdout_truncated: bool = False
    stderr_truncated: bool = False

    @property
    def text(self):
        """The standard output as text."""
        return self.stdout.decode(errors="replace")

    def check(self):
        """Returns itself if the exit code is 0, else raises a Failure with the end of its output."""
        if self.exit_code == 0:
            return self
        code = "exit-status" if self.exit_code is not None else self.ending
        what = f"it exited with {self.exit_code}" if self.exit_code is not None else f"it was ended: {self.ending}"
        shown = (self.stderr or self.stdout).decode(errors="replace")[-2000:].strip()
        advice = "\n".join(self.notices) or None
        raise Failure(f"{what}\n{shown}".strip(), code=code, suggestion=advice)


def run(*program, input=b"", directory=None, environment=None, timeout=None, output_limit=None, live=False):
    """Runs a program with its arguments, without a shell, to its end. A failed command isn't an error: see `check`.

    timeout: seconds. live: whether the caller sees the output while it runs.
    """
    return _run("program", [str(word) for word in program], input, directory, environment, timeout, output_limit, live)


def shell(line, *, input=b"", directory=None, environment=None, timeout=None, output_limit=None, live=False):
    """Runs a line for `bash`, which has to be an argument of the tool with `subject("command")`."""
    return _run("shell", line, input, directory, environment, timeout, output_limit, live)


def _run(kind, command, input, directory, environment, timeout, output_limit, live):
    input = _host.as_bytes(input, "an input")
    directory = None if directory is None else str(directory)
    environment = {str(name): str(value) for name, value in (environment or {}).items()}
    if not _host.IN_COMPONENT:
        return _run_natively(kind, command, input, directory, environment, timeout)
    process = _host.imported("process", "process")
    options = process.Options(
        directory,
        list(environment.items()),
        None if timeout is None else int(timeout * 1000),
        output_limit,
        live,
        None,
    )
    made = process.Command_Program(command) if kind == "program" else process.Command_Shell(command)
    ended, output = _host.checked(process.run, made, input, options)
    return Finished(
        ended.exit_code,
        ended.ending,
        ended.notices,
        output.stdout,
        output.stderr,
        output.stdout_truncated,
        output.stderr_truncated,
    )


def _run_natively(kind, command, input, directory, environment, timeout):
    import os
    import subprocess

    words = command if kind == "program" else ["bash", "-c", command]
    try:
        ended = subprocess.run(
            words,
            input=input,
            cwd=directory,
            env={**os.environ, **environment},
            timeout=timeout,
            capture_output=True,
        )
    except subprocess.TimeoutExpired as error:
        return Finished(None, "timeout", [], error.stdout or b"", error.stderr or b"")
    code = ended.returncode if ended.returncode >= 0 else 128 - ended.returncode
    return Finished(code, "exited", [], ended.stdout, ended.stderr)
