"""Tests of the SDK, as plugins see it. Run them with `python3 -m unittest` in `plugins/sdk-python`."""

import dataclasses
import enum
import http.server
import json
import logging
import threading
import typing
import unittest
from typing import Annotated

import toolhold
from toolhold import _host, _schema, _tool


class Order(enum.Enum):
    UP = "up"
    DOWN = "down"


@dataclasses.dataclass
class Range:
    first: Annotated[int, "The first line."]
    last: int | None = None


@dataclasses.dataclass
class Found:
    lines: int
    names: list[str]


@toolhold.tool(promises=["read-only"], title="Finds")
def find(
    path: Annotated[str, "The file.", toolhold.reads_path, toolhold.Alias("file")],
    words: Annotated[list[str], toolhold.Limits(max=3), toolhold.Examples(["a"])],
    order: Order = Order.UP,
    lines: Annotated[Range | None, "Which lines."] = None,
    ratio: float = 0.5,
    timeout: Annotated[float | None, "Seconds.", toolhold.seconds] = None,
) -> Found:
    """Finds words
    in a file.

    Fails if it is missing.
    """
    return Found(lines.first if lines else 0, [path, *words, order.value, str(ratio)])


@toolhold.tool
def fail(how: typing.Literal["value", "file", "own", "exit", "unserialisable", "keyboard"]):
    """Fails in the way that it is told."""
    if how == "value":
        raise ValueError("7 is no prime")
    if how == "file":
        open("/no/such/file")
    if how == "own":
        raise toolhold.RateLimited("too often", code="slow", retry_after=2.5, content=["so far"])
    if how == "exit":
        raise SystemExit(3)
    return object()


@toolhold.tool
def attached(data: toolhold.Attachment, more: str = "") -> str:
    """Says how long an attachment is."""
    return f"{len(data.bytes)}{more}"


class Schemas(unittest.TestCase):
    def test_annotations_become_a_schema(self):
        expected = {
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file."},
                "words": {"type": "array", "items": {"type": "string"}, "maxItems": 3, "examples": [["a"]]},
                "order": {"type": "string", "enum": ["up", "down"], "default": "up"},
                "lines": {
                    "type": "object",
                    "properties": {"first": {"type": "integer", "description": "The first line."}, "last": {"type": "integer"}},
                    "required": ["first"],
                    "additionalProperties": False,
                    "description": "Which lines.",
                },
                "ratio": {"type": "number", "default": 0.5},
                "timeout": {"type": "number", "description": "Seconds."},
            },
            "required": ["path", "words"],
            "additionalProperties": False,
        }
        self.assertEqual(find.input_schema, expected)
        self.assertEqual(find.output_schema["properties"]["names"], {"type": "array", "items": {"type": "string"}})
        self.assertEqual(find.description, "Finds words in a file.\n\nFails if it is missing.")

    def test_extras_reach_the_definition(self):
        self.assertEqual(find.subjects, [("/path", "path", "read")])
        self.assertEqual(find.arguments, [("path", ["file"], [], None), ("timeout", [], ["timeout"], None)])
        self.assertEqual(attached.arguments, [("data", [], ["attachment"], None)])

    def test_type_without_a_schema_is_refused_with_its_name(self):
        def odd(value: typing.Any):
            """Odd."""

        with self.assertRaisesRegex(TypeError, "value: Any has no JSON Schema"):
            toolhold.tool(odd)

    def test_parameter_without_annotation_is_refused(self):
        def bare(value):
            """Bare."""

        with self.assertRaisesRegex(TypeError, "value has no annotation"):
            toolhold.tool(bare)

    def test_unknown_promise_is_refused(self):
        def odd(value: int):
            """Odd."""

        with self.assertRaisesRegex(ValueError, "'readonly' is no promise; there are: read-only"):
            toolhold.tool(promises=["readonly"])(odd)

    def test_tool_without_description_is_refused(self):
        with self.assertRaisesRegex(TypeError, "a docstring is missing"):
            toolhold.tool(lambda: None)


class Calls(unittest.TestCase):
    def setUp(self):
        _host.standin.reset()

    def run_tool(self, name, arguments, attachments=()):
        return _tool.run(name, json.dumps(arguments), attachments)

    def failure(self, name, arguments):
        with self.assertRaises(toolhold.Failure) as caught:
            self.run_tool(name, arguments)
        return caught.exception

    def test_arguments_are_decoded_and_the_answer_is_json(self):
        output = self.run_tool("find", {"path": "a", "words": ["b"], "order": "down", "lines": {"first": 2}, "ratio": 1})
        self.assertEqual(json.loads(output.structured), {"lines": 2, "names": ["a", "b", "down", "1.0"]})

    def test_wrong_arguments_are_named(self):
        missing = self.failure("find", {"path": "a"})
        self.assertEqual((missing.category, missing.message), ("invalid-parameters", "words is missing"))
        wrong = self.failure("find", {"path": 1, "words": []})
        self.assertEqual((wrong.category, wrong.message), ("type-mismatch", "path is an int; it has to be str"))
        self.assertIn("no argument pth", self.failure("find", {"path": "a", "words": [], "pth": 1}).message)
        self.assertIn("one of ['up', 'down']", self.failure("find", {"path": "a", "words": [], "order": "x"}).message)

    def test_boolean_is_no_number(self):
        with self.assertRaises(toolhold.TypeMismatch):
            _schema.decode(int, True, "n")

    def test_exception_says_its_type_and_message_and_the_log_has_the_traceback(self):
        failure = self.failure("fail", {"how": "value"})
        self.assertEqual((failure.category, failure.code), ("permanent-failure", "exception"))
        self.assertEqual(failure.message, "ValueError: 7 is no prime")
        (level, trace), = _host.standin.log
        self.assertEqual(level, "error")
        self.assertIn("test_toolhold.py", trace)

    def test_error_of_the_system_has_the_code_of_its_kind(self):
        failure = self.failure("fail", {"how": "file"})
        self.assertEqual((failure.code, failure.message), ("not-found", "/no/such/file: not found"))

    def test_own_failure_is_kept(self):
        failure = self.failure("fail", {"how": "own"})
        self.assertEqual((failure.category, failure.code, failure.retry_after), ("rate-limited", "slow", 2.5))
        self.assertEqual(_host.standin.log, [])

    def test_exit_and_unserialisable_answers_are_failures_too(self):
        self.assertEqual(self.failure("fail", {"how": "exit"}).message, "SystemExit: 3")
        self.assertEqual(self.failure("fail", {"how": "unserialisable"}).message, "TypeError: a object has no form in JSON")

    def test_attachment_reaches_its_argument(self):
        data = toolhold.Attachment(bytes=b"four")
        output = self.run_tool("attached", {"data": {"$attachment": 0}, "more": "!"}, [data])
        self.assertEqual(output.content, [toolhold.Content(text="4!")])
        self.assertIn("the call has 0", self.failure("attached", {"data": {"$attachment": 0}}).message)

    def test_tool_is_still_a_function(self):
        self.assertEqual(find("a", ["b"]).names, ["a", "b", "up", "0.5"])


class Host(unittest.TestCase):
    def setUp(self):
        _host.standin.reset()

    def test_store_keeps_compares_and_lists(self):
        toolhold.store.put("a/2", b"two")
        toolhold.store.put("a/1", b"one")
        toolhold.store.put("b", b"x")
        self.assertFalse(toolhold.store.compare_and_set("b", b"y", b"z"))
        self.assertTrue(toolhold.store.compare_and_set("c", None, b"new"))
        toolhold.store.delete("b")
        self.assertEqual(list(toolhold.store.items("a/")), [("a/1", b"one"), ("a/2", b"two")])
        self.assertEqual((toolhold.store.get("b"), toolhold.store.get("c")), (None, b"new"))

    def test_documents_are_found_listed_and_deleted(self):
        from toolhold.index import Document, delete, delete_prefix, get, items, put, search

        put(Document("a/1", "A quick fox", ["animal"], [1, -128]), Document("a/2", "fox, fox and hound"), Document("b"))
        self.assertEqual([hit.key for hit in search("hound FOX")], ["a/2", "a/1"])
        self.assertEqual(search("fox", tags=["animal"], limit=5)[0].found_by, ["words"])
        self.assertEqual([hit.key for hit in search(vector=[127, 0], prefix="a/")], ["a/1"])
        self.assertEqual([hit.key for hit in search(limit=1)], ["b"])
        self.assertEqual([entry.key for entry in items("a/")], ["a/1", "a/2"])
        self.assertEqual((get("b", "c")[0].text, get("b", "c")[1]), ("", None))
        delete("b", "none")
        self.assertEqual((delete_prefix("a/"), search("fox")), (2, []))
        for mistake in (
            lambda: put(Document("a", "x", "animal")),
            lambda: put(Document("a", b"x")),
            lambda: put(Document("a", vector=[0.5])),
            lambda: search(vector=[128]),
        ):
            self.assertRaises(TypeError, mistake)

    def test_tasks_are_kept_and_parts_answer(self):
        from toolhold.schedule import Call, Task, pause, put, remove, run_soon, runs, tasks

        put(Task.cron("tidy", "0 4 * * *", Call("notes__tidy", {"days": 30})))
        put(Task.every("ask", 60, Call("notes__ask")))
        self.assertTrue(pause("ask") and run_soon("ask") and not pause("none"))
        self.assertEqual([(each.task.name, each.paused) for each in tasks()], [("ask", True), ("tidy", False)])
        self.assertEqual((runs("ask"), remove("ask"), remove("ask")), ([], True, False))

        _host.standin.parts["upper"] = lambda data: data.upper() if data else 1 / 0
        first, second = toolhold.parts.run("upper", [b"a", b""])
        self.assertEqual((first, second.code), (b"A", "exception"))
        self.assertEqual(toolhold.parts.run("lower", [b""])[0].code, "unavailable")
        self.assertRaisesRegex(RuntimeError, "`service` has no stand-in", toolhold.service.stop, "a")

    def test_store_takes_only_what_a_component_can_pass_on(self):
        toolhold.store.put("a", bytearray(b"one"))
        self.assertEqual(toolhold.store.get("a"), b"one")
        for mistake in (lambda: toolhold.store.put("a", "text"), lambda: toolhold.store.put("a", 5), lambda: toolhold.store.get(1)):
            with self.assertRaisesRegex(TypeError, "has to be"):
                mistake()
        self.assertEqual(toolhold.store.get("a"), b"one")

    def test_logging_reaches_the_log(self):
        logger = logging.getLogger("toolhold-test")
        logger.addHandler(toolhold.log.Handler())
        logger.propagate = False
        logger.warning("n is %d", 3)
        self.assertEqual(_host.standin.log, [("warn", "n is 3")])

    def test_what_has_no_stand_in_says_so(self):
        with self.assertRaisesRegex(RuntimeError, "`search` has no stand-in"):
            toolhold.search.find("/")

    def test_program_that_fails_says_so(self):
        self.assertEqual(toolhold.process.run("cat", input=b"in").check().text, "in")
        with self.assertRaises(toolhold.Failure) as caught:
            toolhold.process.run("sh", "-c", "echo no >&2; exit 3").check()
        self.assertEqual((caught.exception.code, caught.exception.message), ("exit-status", "it exited with 3\nno"))
        self.assertEqual(toolhold.process.run("sleep", "9", timeout=0.05).ending, "timeout")


class Requests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                host = self.headers["host"].partition(":")[2]
                other = {"/away": f"http://localhost:{host}/show", "/loop": "/loop", "/near": "/show"}
                if self.path in other:
                    self.send_response(302)
                    self.send_header("location", other[self.path])
                    self.end_headers()
                    return
                body = json.dumps({"path": self.path, "authorization": self.headers["authorization"]}).encode()
                self.send_response(503 if self.path == "/down" else 200)
                self.send_header("retry-after", "7")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        cls.url = f"http://127.0.0.1:{cls.server.server_address[1]}"
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()

    @classmethod
    def tearDownClass(cls):
        cls.server.shutdown()
        cls.server.server_close()

    def test_redirect_to_another_origin_loses_private_headers(self):
        headers = {"Authorization": "mine"}
        self.assertEqual(toolhold.http.get(f"{self.url}/near", headers=headers).json()["authorization"], "mine")
        self.assertIsNone(toolhold.http.get(f"{self.url}/away", headers=headers).json()["authorization"])

    def test_redirects_end(self):
        self.assertEqual(toolhold.http.get(f"{self.url}/loop").status, 302)

    def test_status_becomes_the_category_for_retries(self):
        with self.assertRaises(toolhold.ServerError) as caught:
            toolhold.http.get(f"{self.url}/down").check()
        self.assertEqual((caught.exception.code, caught.exception.retry_after), ("http-503", 7))

    def test_long_body_is_cut(self):
        answer = toolhold.http.get(f"{self.url}/show", max_body=5)
        self.assertEqual((answer.body, answer.cut), (b'{"pat', True))

    def test_other_schemes_are_refused(self):
        with self.assertRaisesRegex(toolhold.Failure, "isn't an address"):
            toolhold.http.get("file:///etc/passwd")
