"""Requests to hosts that the operator granted. Ask for `http` in the manifest.

`urllib` and `requests` need sockets, which a plugin doesn't have. Tokens never reach a plugin: the
operator configures them, and the host adds them. In unit tests, `urllib` makes the requests.
"""

import dataclasses
import json as _json
import urllib.parse

from . import _host
from ._failure import Failure, NetworkError, RateLimited, ServerError, TimeLimit

# The bytes of a body that are read if the caller says nothing else.
MAX_BODY = 8 * 1024 * 1024

_REDIRECTS = {301, 302, 303, 307, 308}
_MAX_REDIRECTS = 3

# The headers that stay behind where a redirect leads to another origin.
_PRIVATE = {"authorization", "cookie", "proxy-authorization"}


@dataclasses.dataclass
class Response:
    """An answer. headers: by their names in small letters. cut: whether the body was longer than `max_body`."""

    status: int
    headers: dict
    body: bytes
    url: str
    cut: bool = False

    @property
    def text(self):
        """The body as text."""
        return self.body.decode(errors="replace")

    def json(self):
        """The body as JSON."""
        return _json.loads(self.body)

    def check(self):
        """Returns itself if the status is 200 to 299, else raises a Failure of the category for retries."""
        if 200 <= self.status < 300:
            return self
        retry_after = self.headers.get("retry-after", "")
        kind = RateLimited if self.status == 429 else ServerError if self.status >= 500 else Failure
        raise kind(
            f"{self.url} answered {self.status}",
            code=f"http-{self.status}",
            retry_after=int(retry_after) if retry_after.isascii() and retry_after.isdigit() else None,
        )


def get(url, **options):
    """Sends a GET request. The options are those of `request`."""
    return request("GET", url, **options)


def post(url, **options):
    """Sends a POST request. The options are those of `request`."""
    return request("POST", url, **options)


def request(method, url, *, headers=None, body=b"", json=None, timeout=None, max_body=MAX_BODY):
    """Sends a request and reads the answer. Follows at most three redirects.

    json: a value that is sent as the body. timeout: seconds until the answer begins, and between
    its parts. max_body: the bytes of the body that are read.
    """
    headers = {name.lower(): value for name, value in (headers or {}).items()}
    if json is not None:
        body = _json.dumps(json).encode()
        headers.setdefault("content-type", "application/json")
    if isinstance(body, str):
        body = body.encode()
    body = _host.as_bytes(body, "a body")
    method = method.upper()
    send = _send if _host.IN_COMPONENT else _send_natively
    for redirects in range(_MAX_REDIRECTS + 1):
        answer = send(method, url, headers, body, timeout, max_body)
        target = answer.headers.get("location")
        if answer.status not in _REDIRECTS or target is None or redirects == _MAX_REDIRECTS:
            return answer
        new = urllib.parse.urljoin(url, target)
        if url.startswith("https:") and not new.startswith("https:"):
            return answer
        if _origin(new) != _origin(url):
            headers = {name: value for name, value in headers.items() if name not in _PRIVATE}
        if answer.status == 303 or (answer.status in (301, 302) and method == "POST"):
            method, body = "HEAD" if method == "HEAD" else "GET", b""
            headers = {name: value for name, value in headers.items() if not name.startswith("content-")}
        url = new
    raise AssertionError("the last turn returns")


def _origin(url):
    parts = urllib.parse.urlsplit(url)
    ports = {"http": 80, "https": 443}
    return parts.scheme, parts.hostname, parts.port or ports.get(parts.scheme)


def _parts(url):
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Failure(f"{url} isn't an address: it has to begin with https:// or http://", code="invalid-url")
    path = urllib.parse.quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    query = urllib.parse.quote(parts.query, safe="/?%:@!$&'()*+,;=~-._[]")
    return parts.scheme, parts.netloc.rpartition("@")[2], f"{path}?{query}" if query else path


def _send(method, url, headers, body, timeout, max_body):
    types = _host.imported("wasi_http_types", "http")
    handler = _host.imported("outgoing_handler", "http")
    scheme, authority, path = _parts(url)
    fields = _ok(types.Fields.from_list, [(name, str(value).encode()) for name, value in headers.items()])
    request = types.OutgoingRequest(fields)
    known = {
        "GET": types.Method_Get,
        "HEAD": types.Method_Head,
        "POST": types.Method_Post,
        "PUT": types.Method_Put,
        "DELETE": types.Method_Delete,
        "OPTIONS": types.Method_Options,
        "PATCH": types.Method_Patch,
    }
    request.set_method(known[method]() if method in known else types.Method_Other(method))
    request.set_scheme(types.Scheme_Https() if scheme == "https" else types.Scheme_Http())
    _ok(request.set_authority, authority)
    _ok(request.set_path_with_query, path)
    options = types.RequestOptions()
    if timeout is not None:
        nanoseconds = int(timeout * 1_000_000_000)
        options.set_connect_timeout(nanoseconds)
        options.set_first_byte_timeout(nanoseconds)
        options.set_between_bytes_timeout(nanoseconds)
    outgoing = request.body()
    future = _ok(handler.handle, request, options)
    _write(types, outgoing, body)
    with future.subscribe() as ready:
        ready.block()
    response = _ok_value(_ok_value(future.get()))
    status = response.status()
    answered = {}
    with response.headers() as fields:
        for name, value in fields.entries():
            text = value.decode("latin-1")
            answered[name.lower()] = f"{answered[name.lower()]}, {text}" if name.lower() in answered else text
    data, cut = _read(response, max_body)
    return Response(status, answered, data, url, cut)


def _write(types, outgoing, body):
    if body:
        with outgoing.write() as stream:
            for start in range(0, len(body), 4096):
                _ok(stream.blocking_write_and_flush, body[start : start + 4096])
    _ok(types.OutgoingBody.finish, outgoing, None)


def _read(response, max_body):
    streams = _host.imported("streams", "http")
    data = bytearray()
    with response, response.consume() as incoming, incoming.stream() as stream:
        while True:
            try:
                part = stream.blocking_read(64 * 1024)
            except _host.Err as error:
                if isinstance(error.value, streams.StreamError_Closed):
                    return bytes(data), False
                raise NetworkError("the answer broke off", code="disconnected") from None
            data += part
            if len(data) > max_body:
                return bytes(data[:max_body]), True


def _ok(function, *arguments):
    try:
        return function(*arguments)
    except _host.Err as error:
        raise _failure(error.value) from None


def _ok_value(result):
    if isinstance(result, _host.Err):
        raise _failure(result.value)
    return result.value


def _failure(error):
    """A Failure from an error code of WASI, in the category for retries."""
    name = type(error).__name__.rpartition("_")[2]
    detail = getattr(error, "value", None)
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()
    message = f"the request failed: {words}" + (f" ({detail})" if isinstance(detail, str) else "")
    code = words.replace(" ", "-")
    if "Timeout" in name:
        return TimeLimit(message, code=code)
    if name.startswith(("Dns", "Destination", "Connection", "Tls")) and not name.endswith("Prohibited"):
        return NetworkError(message, code=code)
    return Failure(message, code=code)


def _send_natively(method, url, headers, body, timeout, max_body):
    import urllib.error
    import urllib.request

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_):
            return None

    _parts(url)
    request = urllib.request.Request(url, data=body or None, headers=headers, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), Stay)
    try:
        answer = opener.open(request, timeout=timeout or 30)
    except urllib.error.HTTPError as error:
        answer = error
    except TimeoutError as error:
        raise TimeLimit(str(error), code="timed-out") from None
    except OSError as error:
        raise NetworkError(f"the request failed: {error}", code="unreachable") from None
    with answer:
        data = answer.read(max_body + 1)
        fields = {name.lower(): value for name, value in answer.headers.items()}
        return Response(answer.status, fields, data[:max_body], url, len(data) > max_body)
