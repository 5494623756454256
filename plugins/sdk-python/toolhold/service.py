"""Programs that outlive a call, such as language servers. Ask for `service` in the manifest, beside `process`.

    with service.connect("numbers", "bc", "--quiet") as numbers:
        numbers.write(b"6 * 7\\n")
        answer = numbers.read(1)
        numbers.keep()

There is no stand-in in unit tests.
"""

from . import _host


def connect(name, *command, directory=None, environment=None):
    """Connects to the service with this name, which is started if it doesn't run with this command."""
    service, process = _host.imported("service", "service"), _host.imported("process", "process")
    environment = [(str(key), str(value)) for key, value in (environment or {}).items()]
    options = process.Options(None if directory is None else str(directory), environment, None, None, False, None)
    words = [str(word) for word in command]
    return Connection(_host.checked(service.connect, _host.as_text(name, "a name"), words, options))


def stop(name):
    """Ends a service. False: none with this name runs."""
    return _host.checked(_host.imported("service", "service").stop, _host.as_text(name, "a name"))


class Connection:
    """The only connection to a service. The service ends with it, unless `keep` was called: use it with `with`."""

    def __init__(self, held):
        self._held = held

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._held.__exit__(*error)

    def is_new(self):
        """Whether the program was started for this connection, so that it knows nothing yet."""
        return self._held.is_new()

    def read(self, timeout=None):
        """Waits for standard output, for its end, or so many seconds, and takes it: at most 1 MiB."""
        return self._held.read(None if timeout is None else int(timeout * 1000))

    def errors(self):
        """Takes the standard error so far: at most 1 MiB."""
        return self._held.errors()

    def write(self, data):
        """Writes to standard input, waits until the program has read it, at most for 4 s, and returns how many bytes it read."""
        return self._held.write(_host.as_bytes(data, "what is written"))

    def ended(self):
        """None: the program runs. Else an object with exit_code and ending."""
        return self._held.ended()

    def keep(self):
        """Keeps the service for the next connection. Call it when no message is half read or half written."""
        self._held.keep()
