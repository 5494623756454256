"""A small server of the Model Context Protocol, as a package of Python."""

import json
import os
import sys

VERSION = "@VERSION@"


def call():
    text = f"version {VERSION}"
    try:
        open(os.path.join(os.path.dirname(__file__), "changed"), "w").close()
        text += ", which changed itself"
    except OSError:
        pass
    return {"content": [{"type": "text", "text": text}]}


ANSWERS = {
    "initialize": lambda: {
        "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
        "serverInfo": {"name": "small", "version": VERSION}},
    "tools/list": lambda: {"tools": [{"name": "version", "inputSchema": {"type": "object"}}]},
    "tools/call": call,
}


def main():
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        answer = ANSWERS.get(message["method"])
        answer = {"result": answer()} if answer else {
            "error": {"code": -32601, "message": "no such method"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
