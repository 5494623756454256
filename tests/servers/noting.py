"""A server of the Model Context Protocol that notes each call in a file, for tests of approvals.

Its arguments are its name and the file.
"""

import json
import sys

NAME, NOTES = sys.argv[1:]

TOOLS = [
    {"name": "status", "description": "Says the state", "inputSchema": {"type": "object"}},
    {"name": "commit", "description": "Saves the state", "inputSchema": {"type": "object"}},
    {"name": "reset", "description": "Loses the state", "inputSchema": {"type": "object"},
     "annotations": {"destructiveHint": True}},
]


def call(tool):
    with open(NOTES, "a") as notes:
        notes.write(f"{NAME} {tool}\n")
    return {"content": [{"type": "text", "text": "noted"}]}


def answer(message):
    method = message["method"]
    if method == "initialize":
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": NAME, "version": "1"}}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return call(message["params"]["name"])
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer(message)}),
              flush=True)
