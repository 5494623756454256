"""A scripted model behind a loopback server: Chat, Messages, Responses and Ollama, streaming.

Takes a folder. `port` gets its port, `requests` a line of JSON for each request: path, headers and
body. A task begins with a name and a colon; `policies.py` has the function of that name.

A policy is a generator that yields what the model says and gets the results of its calls. For each
request it runs again from its begin over the transcript in the request, so the server knows nothing
of a session but what Toolhold sends.
"""

import http.server
import json
import os
import re
import socket
import sys
import threading
import time

import policies
from policies import Said

FOLDER = sys.argv[1]
LOCK = threading.Lock()


def texts(content):
    """The texts of a message's content, in any format."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content if "text" in part)


def images(content):
    """How many images a message's content has."""
    kinds = ("image", "image_url", "input_image")
    parts = content if isinstance(content, list) else []
    return sum(part.get("type") in kinds for part in parts)


class Transcript:
    """What a request says, in the same form for all formats."""

    def __init__(self):
        self.system = ""
        self.tools = []
        # Each is ("user", text), ("model", calls) or ("results", {id: (text, images)}).
        self.messages = []

    def user(self, text):
        self.messages.append(("user", text))

    def model(self, calls):
        self.messages.append(("model", calls))

    def result(self, call, text, pictures=0):
        if not self.messages or self.messages[-1][0] != "results":
            self.messages.append(("results", {}))
        results = self.messages[-1][1]
        assert call not in results, f"two results for {call}"
        results[call] = (text, pictures)

    def pictures(self, count):
        """Images that follow results in a message of their own."""
        if count and self.messages and self.messages[-1][0] == "results":
            results = self.messages[-1][1]
            last = list(results)[-1]
            results[last] = (results[last][0], results[last][1] + count)


def from_chat(body):
    transcript = Transcript()
    transcript.tools = [tool["function"]["name"] for tool in body.get("tools", [])]
    for message in body["messages"]:
        content = message.get("content")
        if message["role"] in ("system", "developer"):
            transcript.system = texts(content)
        elif message["role"] == "assistant":
            transcript.model([call["id"] for call in message.get("tool_calls") or []])
        elif message["role"] == "tool":
            transcript.result(message["tool_call_id"], texts(content), images(content))
        else:
            pictures = images(content) + len(message.get("images", []))
            transcript.pictures(pictures)
            if not pictures:
                transcript.user(texts(content))
    return transcript


def from_messages(body):
    transcript = Transcript()
    transcript.tools = [tool["name"] for tool in body.get("tools", [])]
    transcript.system = texts(body.get("system"))
    for message in body["messages"]:
        content = message["content"]
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        if message["role"] == "assistant":
            transcript.model([part["id"] for part in parts if part["type"] == "tool_use"])
            continue
        for part in parts:
            if part["type"] == "tool_result":
                result = part.get("content")
                transcript.result(part["tool_use_id"], texts(result), images(result))
            elif part["type"] == "text":
                transcript.user(part["text"])
    return transcript


def from_responses(body):
    transcript = Transcript()
    transcript.tools = [tool["name"] for tool in body.get("tools", [])]
    transcript.system = body.get("instructions") or ""
    for item in body["input"]:
        kind = item.get("type", "message")
        if kind == "function_call":
            if not transcript.messages or transcript.messages[-1][0] != "model":
                transcript.model([])
            transcript.messages[-1][1].append(item["call_id"])
        elif kind == "function_call_output":
            output = item["output"]
            transcript.result(item["call_id"], texts(output), images(output))
        elif kind == "message" and item["role"] == "assistant":
            if not transcript.messages or transcript.messages[-1][0] != "model":
                transcript.model([])
        elif kind == "message" and item["role"] == "user":
            pictures = images(item["content"])
            transcript.pictures(pictures)
            if not pictures:
                transcript.user(texts(item["content"]))
        elif kind == "message":
            transcript.system = texts(item["content"])
    return transcript


def check(transcript):
    """Each call of an answer has its result in the next message, and no other call has."""
    messages = transcript.messages
    for (role, calls), (after, results) in zip(messages, messages[1:] + [("end", {})]):
        if role == "model" and calls:
            assert after == "results", f"{calls} have no results"
            assert set(results) == set(calls), f"{list(results)} for {calls}"


def say(transcript):
    """What the model says next."""
    messages = transcript.messages
    if not transcript.tools and "Summarise the conversation" in transcript.system:
        return policies.summary(messages)
    if not transcript.tools and "Summarise the result" in transcript.system:
        return policies.result_summary(messages[0][1])
    if "Correct their form" in transcript.system:
        return policies.correction(messages[0][1])
    tasks = [
        (at, text)
        for at, (role, said) in enumerate(messages)
        if role == "user"
        for text in re.findall(r"^([a-z_0-9]+: .*|[a-z_0-9]+:)$", said, re.M)
        if hasattr(policies, text.split(":")[0])
    ]
    assert tasks, "no message names a policy"
    at, text = tasks[-1]
    name, _, rest = text.partition(":")
    policy = getattr(policies, name)(rest.strip())
    said = next(policy)
    after = messages[at + 1 :]
    for index, (role, calls) in enumerate(after):
        if role != "model":
            continue
        following = after[index + 1] if index + 1 < len(after) else ("", None)
        if following[0] == "user":
            # Results of calls in texts are texts.
            results = [policies.Result(following[1])]
        else:
            results = [policies.Result(*following[1][call]) for call in calls]
        try:
            said = policy.send(results)
        except StopIteration as end:
            said = end.value if end.value is not None else Said("done")
    return said if isinstance(said, Said) else Said.of(said)


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # What was read last, to count what a cache would have.
    last = b""

    def log_message(self, *_):
        pass

    def do_GET(self):
        body = json.dumps({"object": "list", "data": [{"id": "scripted"}]}).encode()
        self.whole(200, body)

    def whole(self, status, body, headers=()):
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        raw = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/api/show":
            return self.whole(200, b'{"model_info": {}}')
        if self.path == "/v1/embeddings":
            return self.embed(json.loads(raw)["input"])
        try:
            self.answer(raw)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        except Exception as error:
            # The tests see that there is no such file.
            with LOCK, open(os.path.join(FOLDER, "wrong"), "a") as wrong:
                wrong.write(f"{error!r}\n")
            self.whole(400, json.dumps({"error": {"message": f"wrong request: {error}"}}).encode())

    def answer(self, raw):
        body = json.loads(raw)
        formats = {
            "/v1/chat/completions": (from_chat, Chat),
            "/v1/messages": (from_messages, Messages),
            "/v1/responses": (from_responses, Responses),
            "/api/chat": (from_chat, Ollama),
        }
        read, write = formats[self.path]
        with LOCK:
            line = {"path": self.path, "headers": dict(self.headers), "body": raw.decode()}
            with open(os.path.join(FOLDER, "requests"), "a") as requests:
                requests.write(json.dumps(line) + "\n")
            same = len(os.path.commonprefix([Server.last, raw]))
            Server.last = raw
            number = sum(1 for _ in open(os.path.join(FOLDER, "requests")))
        window = os.path.join(FOLDER, "window")
        if os.path.exists(window) and len(raw) // 4 > int(open(window).read()):
            error = {"code": "context_length_exceeded", "message": "maximum context length"}
            return self.whole(400, json.dumps({"error": error}).encode())
        transcript = read(body)
        check(transcript)
        said = say(transcript)
        key = self.headers.get("authorization") or self.headers.get("x-api-key") or ""
        said.put_key(key.removeprefix("Bearer "))
        if said.status != 200:
            error = json.dumps({"error": {"message": said.text}}).encode()
            return self.whole(said.status, error, said.headers)
        if said.hang == "before":
            return self.hang()
        self.send_response(200)
        self.send_header("content-type", write.kind)
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        cached = same // 4 if number > 1 else 0
        usage = said.usage or (len(raw) // 4, cached, 10 + len(said.text) // 4)
        writer = write(self.wfile, f"c{number}", usage)
        writer.begin()
        for part in said.parts():
            writer.text(part)
        if said.hang == "text":
            return self.hang()
        for call in said.calls:
            writer.call(*call)
        if said.hang == "call":
            return self.hang()
        if said.raw is not None:
            for piece in said.raw(write.__name__):
                self.wfile.write(piece)
            return None
        return writer.end(said)

    def embed(self, texts):
        """The task of the tests means the tool about rate limits, and all else something else."""
        if os.path.exists(os.path.join(FOLDER, "no-vectors")):
            return self.whole(500, b'{"error": {"message": "no vectors today"}}')
        with LOCK, open(os.path.join(FOLDER, "embedded"), "a") as embedded:
            embedded.writelines(json.dumps(text) + "\n" for text in texts)
        means = [[0.9, 0.1] if "qqq" in text or "ratelimit" in text else [0.1, 0.9] for text in texts]
        data = [{"index": at, "embedding": vector} for at, vector in enumerate(means)]
        return self.whole(200, json.dumps({"data": data}).encode())

    def hang(self):
        """Says nothing more until the client goes away."""
        self.close_connection = True
        with open(os.path.join(FOLDER, "hangs"), "a") as hangs:
            hangs.write("x")
        self.connection.settimeout(60)
        try:
            self.connection.recv(1)
        except (TimeoutError, socket.error):
            pass


class Writer:
    kind = "text/event-stream"

    def __init__(self, out, prefix, usage):
        self.out, self.prefix = out, prefix
        self.input, self.cached, self.output = usage
        self.calls = 0

    def call_id(self):
        self.calls += 1
        return f"{self.prefix}_{self.calls - 1}"

    def begin(self):
        pass

    def event(self, data, name=None):
        head = f"event: {name}\n" if name else ""
        self.out.write(f"{head}data: {json.dumps(data)}\n\n".encode())


class Chat(Writer):
    def delta(self, delta, end=None):
        choices = [{"index": 0, "delta": delta, "finish_reason": end}]
        self.event({"id": "c", "object": "chat.completion.chunk", "model": "scripted", "choices": choices})

    def text(self, text):
        self.delta({"content": text})

    def call(self, name, arguments, own=None):
        index = self.calls
        self.calls += own is not None
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        half = len(text) // 2
        function = {"name": name, "arguments": text[:half]}
        call = {"index": index, "id": own or self.call_id(), "type": "function", "function": function}
        self.delta({"tool_calls": [call]})
        self.delta({"tool_calls": [{"index": index, "function": {"arguments": text[half:]}}]})

    def end(self, said):
        self.delta({}, said.stop or ("tool_calls" if said.calls else "stop"))
        usage = {
            "prompt_tokens": self.input,
            "completion_tokens": self.output,
            "total_tokens": self.input + self.output,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }
        self.event({"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": usage})
        self.out.write(b"data: [DONE]\n\n")


class Messages(Writer):
    blocks = 0

    def typed(self, data):
        self.event(data, data["type"])

    def begin(self):
        usage = {
            "input_tokens": self.input - self.cached,
            "cache_read_input_tokens": self.cached,
            "output_tokens": 1,
        }
        message = {"id": "m", "type": "message", "role": "assistant", "content": [], "usage": usage}
        self.typed({"type": "message_start", "message": {**message, "model": "scripted"}})

    def block(self, block, deltas):
        index = self.blocks
        self.blocks += 1
        self.typed({"type": "content_block_start", "index": index, "content_block": block})
        for delta in deltas:
            self.typed({"type": "content_block_delta", "index": index, "delta": delta})
        self.typed({"type": "content_block_stop", "index": index})

    def text(self, text):
        self.block({"type": "text", "text": ""}, [{"type": "text_delta", "text": text}])

    def call(self, name, arguments, own=None):
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        half = len(text) // 2
        parts = [text[:half], text[half:]]
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
        self.block({"type": "tool_use", "id": self.call_id(), "name": name, "input": {}}, deltas)

    def end(self, said):
        known = {"length": "max_tokens", "content_filter": "refusal"}
        stop = known.get(said.stop, "tool_use" if said.calls else "end_turn")
        usage = {"output_tokens": self.output}
        self.typed({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage})
        self.typed({"type": "message_stop"})


class Responses(Writer):
    items = 0

    def typed(self, data):
        self.event(data, data["type"])

    def begin(self):
        self.typed({"type": "response.created", "response": {"model": "scripted"}})

    def text(self, text):
        at, item = self.items, {"type": "message", "role": "assistant", "id": f"msg_{self.items}"}
        self.items += 1
        self.typed({"type": "response.output_item.added", "output_index": at, "item": {**item, "content": []}})
        self.typed({"type": "response.output_text.delta", "output_index": at, "delta": text})
        content = [{"type": "output_text", "text": text, "annotations": []}]
        item = {**item, "status": "completed", "content": content}
        self.typed({"type": "response.output_item.done", "output_index": at, "item": item})

    def call(self, name, arguments, own=None):
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        at, call = self.items, {"type": "function_call", "call_id": self.call_id(), "name": name}
        self.items += 1
        self.typed({"type": "response.output_item.added", "output_index": at, "item": {**call, "arguments": ""}})
        self.typed({"type": "response.function_call_arguments.delta", "output_index": at, "delta": text})
        self.typed({"type": "response.output_item.done", "output_index": at, "item": {**call, "arguments": text}})

    def end(self, said):
        usage = {
            "input_tokens": self.input,
            "input_tokens_details": {"cached_tokens": self.cached},
            "output_tokens": self.output,
        }
        response = {"model": "scripted", "status": "completed", "usage": usage}
        kind = "response.completed"
        reason = {"length": "max_output_tokens"}.get(said.stop, said.stop)
        if reason:
            kind, response["status"] = "response.incomplete", "incomplete"
            response["incomplete_details"] = {"reason": reason}
        self.typed({"type": kind, "response": response})


class Ollama(Writer):
    kind = "application/x-ndjson"

    def line(self, message, **more):
        data = {"model": "scripted", "message": message, "done": False, **more}
        self.out.write(json.dumps(data).encode() + b"\n")

    def text(self, text):
        self.line({"role": "assistant", "content": text})

    def call(self, name, arguments, own=None):
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
        function = {"name": name, "arguments": arguments}
        self.line({"role": "assistant", "content": "", "tool_calls": [{"function": function}]})

    def end(self, said):
        counts = {"prompt_eval_count": self.input, "eval_count": self.output}
        self.line({"role": "assistant", "content": ""}, done=True, done_reason=said.stop or "stop", **counts)
        # This server closes the connection late.
        time.sleep(0.01)


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.daemon_threads = True
    with open(os.path.join(FOLDER, "port.new"), "w") as port:
        port.write(str(server.server_port))
    os.rename(os.path.join(FOLDER, "port.new"), os.path.join(FOLDER, "port"))
    server.serve_forever()
