"""A tool for each part of the SDK, for tests in a real host."""

import logging
from typing import Annotated, Literal

import toolhold
from toolhold import index, parts, schedule, service
from toolhold.index import Document
from toolhold.schedule import Call, Task


@toolhold.tool
def fail(how: Literal["uncaught", "file", "own", "deep", "exit", "long"]):
    """Fails in the way that it is told."""
    if how == "uncaught":
        return {"a": 1}["b"]
    if how == "file":
        open("nope")
    if how == "own":
        raise toolhold.RateLimited("too often", code="slow", suggestion="wait", retry_after=2.5, content=["so far"])
    if how == "deep":
        fail.function("deep")
    if how == "exit":
        raise SystemExit(3)
    raise ValueError("ü" * 10_000)


@toolhold.tool
def talk(words: list[str]) -> toolhold.Output:
    """Says each word as it goes."""
    for index, word in enumerate(words):
        toolhold.call.progress(index / len(words), word)
        toolhold.call.emit(word)
    logging.getLogger("talk").warning("said %d", len(words))
    toolhold.log.info(f"id {len(toolhold.call.id()) > 0}, left {toolhold.call.remaining() > 1}")
    return toolhold.Output(content=["end"], after_emitted=True)


@toolhold.tool
def ask(
    url: Annotated[str, "The address.", toolhold.subject("url", "read")],
    body: Annotated[str | None, "What is sent."] = None,
) -> dict:
    """Sends a request and says what came."""
    answer = toolhold.http.request("POST" if body else "GET", url, body=body or b"", timeout=5).check()
    return {"status": answer.status, "text": answer.text, "cut": answer.cut, "type": answer.headers["content-type"]}


@toolhold.tool
def start(program: list[str], input: str = "") -> str:
    """Runs a program."""
    return toolhold.process.run(*program, input=input.encode()).check().text


@toolhold.tool
def setting(key: str) -> str:
    """Says a setting."""
    return str(toolhold.config.get(key, "unset"))


@toolhold.tool
def keep() -> str:
    """Uses what the manifest doesn't ask for."""
    return str(toolhold.store.get("key"))


def code_of(function, *arguments):
    try:
        return function(*arguments)
    except toolhold.Failure as failure:
        return failure.code


@toolhold.tool
def try_index() -> dict:
    """Tries the index: what is found, listed, refused and deleted."""
    every_byte = bytes(range(256))
    index.put(
        Document("a/1", "A quick fox", ["animal"], [1, -128], every_byte), Document("a/2", "föx, fox and hound"), Document("b")
    )
    first, none = index.get("a/1", "none")
    found = {
        "words": [hit.key for hit in index.search("hound FOX")],
        "tagged": [hit.key for hit in index.search("fox", tags=["animal"], limit=1)],
        "near": [(hit.key, hit.found_by) for hit in index.search(vector=[127, 0], prefix="a/", limit=1)],
        "whole": (first.text, first.tags, first.vector, first.data == every_byte, none),
        "no_key": code_of(index.put, Document("")),
        "quota": code_of(index.put, *(Document(f"c/{number}", data=bytes(60_000)) for number in range(40))),
    }
    index.put(*(Document(f"many/{number:04}") for number in range(1000)))
    index.put(Document("many/1000"))
    found["listed"] = len(list(index.items("many/")))
    found["deleted"] = index.delete_prefix("many/")
    index.delete("b", "none")
    found["left"] = [(entry.key, len(entry.data)) for entry in index.items()]
    return found


@toolhold.tool
def try_schedule(own: str) -> dict:
    """Tries tasks: what is kept, refused, listed and removed. own: the full name of a tool of this plugin."""
    action = Call(own, {"key": "colour"})
    state = schedule.put(Task.cron("tidy", "0 4 * * *", action))
    again = schedule.put(Task("again", "every", "3600", action, zone="Europe/Berlin", missed="skip"))
    found = {
        "next": state.next[13:14] + again.next[10:11],
        "other": code_of(schedule.put, Task.once("other", "PT1H", Call("read", {"path": "x"}))),
        "prompt": code_of(schedule.put, Task.once("other", "PT1H", "do something")),
        "invalid": code_of(schedule.put, Task.cron("other", "never", action)),
        "quota": code_of(schedule.put, Task.every("third", 60, action)),
        "paused": (schedule.pause("again"), schedule.pause("none")),
        "tasks": [
            (each.task.name, each.task.kind, each.task.when, each.task.zone, each.task.missed, each.paused)
            for each in schedule.tasks()
        ],
        "arguments": schedule.tasks()[1].task.action.arguments,
        "removed": (schedule.remove("again"), schedule.remove("again")),
        "soon": (schedule.run_soon("tidy"), schedule.run_soon("none")),
    }
    found["runs"] = [run.state for run in schedule.runs("tidy")]
    return found


@toolhold.tool
def try_parts() -> list:
    """Tries a part: each input has an answer or a failure of its own."""
    results = parts.run("attack", [b"echo a", b"fail x", b"", b"echo b"]) + parts.run("none", [b""])
    return [each.decode() if isinstance(each, bytes) else each.code for each in results]


@toolhold.tool
def try_service() -> dict:
    """Tries a service: what it says, and when it goes on and ends."""
    said = []
    for word in (b"one\n", b"two\n"):
        with service.connect("words", "cat") as words:
            said.append((words.is_new(), words.write(word), words.read(20).decode(), words.ended() is None))
            words.keep()
    found = {"said": said, "full": code_of(service.connect, "more", "cat"), "stopped": [service.stop("words"), service.stop("words")]}
    with service.connect("words", "cat") as words:
        found["dropped"] = [words.is_new()]
    found["dropped"].append(service.stop("words"))
    with service.connect("words", "false") as words:
        read, ended = words.read(20), words.ended()
        found["ended"] = (len(read), len(words.errors()), ended.exit_code, ended.ending)
    found["denied"] = code_of(service.connect, "words", "bash")
    return found
