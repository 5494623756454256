"""A server with the tools of a recorded catalogue. A call of a tool leaves its name in a file."""

import json
import os
import sys

CATALOGUE, FOLDER = sys.argv[1:]


def tools():
    with open(CATALOGUE) as file:
        recorded = json.load(file)["tools"]
    return {"tools": [
        {"name": tool["name"], "description": tool["description"], "inputSchema": tool["schema"]}
        for tool in recorded]}


def call(parameters):
    with open(os.path.join(FOLDER, "called"), "a") as called:
        called.write(parameters["name"] + "\n")
    return {"content": [{"type": "text", "text": "called " + parameters["name"]}]}


ANSWERS = {
    "initialize": lambda _: {
        "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
        "serverInfo": {"name": "recorded", "version": "1"}},
    "tools/list": lambda _: tools(),
    "tools/call": call,
}


def main():
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        answer = ANSWERS.get(message["method"])
        answer = {"result": answer(message.get("params", {}))} if answer else {
            "error": {"code": -32601, "message": "no such method"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)


main()
