"""A tool for each part of the SDK, for tests in a real host."""

import logging
from typing import Annotated, Literal

import berth


@berth.tool
def fail(how: Literal["uncaught", "file", "own", "deep", "exit", "long"]):
    """Fails in the way that it is told."""
    if how == "uncaught":
        return {"a": 1}["b"]
    if how == "file":
        open("nope")
    if how == "own":
        raise berth.RateLimited("too often", code="slow", suggestion="wait", retry_after=2.5, content=["so far"])
    if how == "deep":
        fail.function("deep")
    if how == "exit":
        raise SystemExit(3)
    raise ValueError("ü" * 10_000)


@berth.tool
def talk(words: list[str]) -> berth.Output:
    """Says each word as it goes."""
    for index, word in enumerate(words):
        berth.call.progress(index / len(words), word)
        berth.call.emit(word)
    logging.getLogger("talk").warning("said %d", len(words))
    berth.log.info(f"id {len(berth.call.id()) > 0}, left {berth.call.remaining() > 1}")
    return berth.Output(content=["end"], after_emitted=True)


@berth.tool
def ask(
    url: Annotated[str, "The address.", berth.subject("url", "read")],
    body: Annotated[str | None, "What is sent."] = None,
) -> dict:
    """Sends a request and says what came."""
    answer = berth.http.request("POST" if body else "GET", url, body=body or b"", timeout=5).check()
    return {"status": answer.status, "text": answer.text, "cut": answer.cut, "type": answer.headers["content-type"]}


@berth.tool
def start(program: list[str], input: str = "") -> str:
    """Runs a program."""
    return berth.process.run(*program, input=input.encode()).check().text


@berth.tool
def setting(key: str) -> str:
    """Says a setting."""
    return str(berth.config.get(key, "unset"))


@berth.tool
def keep() -> str:
    """Uses what the manifest doesn't ask for."""
    return str(berth.store.get("key"))
