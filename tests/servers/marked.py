"""A server of the Model Context Protocol that says what it is told, in every place where it can."""

import base64
import json
import os
import sys

SCHEMA = {"type": "object", "properties": {"way": {"type": "string"}, "mark": {"type": "string"}}}


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def result(id, content, **more):
    send({"id": id, "result": {"content": content, **more}})


def say(id, way, mark):
    text = {"type": "text", "text": mark}
    data = base64.b64encode(b"x").decode()
    if way == "text":
        result(id, [text, text])
    elif way == "long":
        result(id, [{"type": "text", "text": f"{mark}\n" * 3000}])
    elif way == "structured":
        result(id, [text], structuredContent={"a": [mark], mark: 1})
    elif way == "failure":
        result(id, [text], isError=True)
    elif way == "error":
        send({"id": id, "error": {"code": -32000, "message": mark, "data": mark}})
    elif way == "image type":
        result(id, [{"type": "image", "data": data, "mimeType": f"image/png; {mark}"}])
    elif way == "audio type":
        result(id, [{"type": "audio", "data": data, "mimeType": mark}])
    elif way == "resource type":
        inside = {"uri": "memo://x", "mimeType": mark, "text": "x"}
        result(id, [{"type": "resource", "resource": inside}])
    elif way == "blob type":
        inside = {"uri": f"memo://{mark}", "mimeType": mark, "blob": data}
        result(id, [{"type": "resource", "resource": inside}])
    elif way == "link":
        link = {"type": "resource_link", "uri": f"memo://{mark}", "name": mark, "mimeType": mark}
        result(id, [{**link, "description": mark}])
    elif way == "meta":
        result(id, [{**text, "_meta": {"x": mark}}], _meta={"x": mark})
    elif way == "last words":
        sys.stderr.write(f"Error: {mark}\n")
        sys.stderr.flush()
        os._exit(3)


for line in sys.stdin:
    message = json.loads(line)
    method, id, params = message.get("method"), message.get("id"), message.get("params", {})
    if method == "initialize":
        send({"id": id, "result": {
            "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "marked", "version": "1"}}})
    elif method == "tools/list":
        send({"id": id, "result": {"tools": [
            {"name": "say", "description": "Says it", "inputSchema": SCHEMA}]}})
    elif method == "tools/call":
        say(id, **params["arguments"])
    elif method is not None and id is not None:
        send({"id": id, "error": {"code": -32601, "message": "no such method"}})
