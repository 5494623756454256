"""The client of the protocol's conformance suite: the real `toolhold`, with the suite's server at a URL.

Takes the program `toolhold`, a folder for locks, and the URL. It is the person too: it approves the
server, logs in where Toolhold says so, does what Toolhold's messages say, and answers questions. An MCP
client on the standard input of `toolhold serve` calls the tools.
"""

import contextlib
import fcntl
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request

TOOLHOLD, LOCKS, URL = sys.argv[1], sys.argv[2], sys.argv[-1]
SCENARIO = os.environ["MCP_CONFORMANCE_SCENARIO"]
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
# Clients that the suite starts run at the same time: so many do something.
AT_A_TIME = 3


@contextlib.contextmanager
def turn():
    """Waits for one of the places."""
    while True:
        for place in range(AT_A_TIME):
            file = open(os.path.join(LOCKS, f"place{place}"), "a")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                continue
            with file:
                yield
            return
        with open(os.path.join(LOCKS, f"place{os.getpid() % AT_A_TIME}"), "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)


class Person:
    """Someone who uses Toolhold in a home of their own."""

    def __init__(self, folder):
        self.folder = folder
        self.file = os.path.join(folder, ".config/toolhold/toolhold.toml")
        os.makedirs(os.path.dirname(self.file), mode=0o700)
        self.environment = {"PATH": os.environ["PATH"], "HOME": folder}
        self.oauth = {}
        self.write()

    def write(self):
        table = ["[tools]", 'autonomy = "full"', "[mcp.servers.suite]", f"url = {json.dumps(URL)}"]
        table += [f"oauth.{key} = {json.dumps(value)}" for key, value in self.oauth.items()]
        with open(self.file, "w") as file:
            file.write("\n".join(table) + "\n")

    def toolhold(self, *words):
        return subprocess.Popen([TOOLHOLD, *words], cwd=self.folder, env=self.environment, text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def run(self, *words):
        """Returns whether it succeeded, and what it says to people."""
        process = self.toolhold(*words)
        out, told = process.communicate()
        sys.stderr.write(f"$ toolhold {' '.join(words)}\n{out[-2000:]}{told}")
        return process.returncode == 0, told

    def log_in(self):
        """Logs in, as a browser does that follows where it is led."""
        process = self.toolhold("mcp", "login", "suite")
        address = process.stdout.readline().strip()
        if address:
            with urllib.request.urlopen(address) as page:
                page.read()
        _, told = process.communicate()
        sys.stderr.write(f"$ toolhold mcp login suite\n{address}\n{told}")
        return process.returncode == 0, told

    def follow(self, told):
        """Does what a message says. Returns whether there was something to do."""
        scopes = re.search(r"`scopes = (\[.*?\])`", told)
        if scopes:
            self.oauth["scopes"] = json.loads(scopes[1])
            self.write()
        if "toolhold mcp login suite" not in told:
            return False
        is_in, told = self.log_in()
        issuer = re.search(r"`issuer = (\".*?\")`", told)
        if not is_in and issuer:
            self.oauth["issuer"] = json.loads(issuer[1])
            self.write()
            is_in, _ = self.log_in()
        return is_in


class Client:
    """An MCP client with `toolhold serve`."""

    def __init__(self, person):
        self.process = person.toolhold("serve")
        self.last = 0
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
                                "clientInfo": {"name": "suite", "version": "1"}})
        self.send({"method": "notifications/initialized"})

    def send(self, message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def ask(self, method, params):
        self.last += 1
        self.send({"id": self.last, "method": method, "params": params})
        for line in self.process.stdout:
            message = json.loads(line)
            if message.get("method") == "elicitation/create":
                self.send({"id": message["id"], "result": answer(message["params"])})
            elif message.get("id") == self.last and "method" not in message:
                sys.stderr.write(f"{method}: {json.dumps(message)[:3000]}\n")
                return message["result"]
        sys.exit(f"toolhold serve ended: {self.process.stderr.read()}")

    def tools(self):
        tools = self.ask("tools/list", {})["tools"]
        return [tool for tool in tools if tool["name"].startswith("suite__")]

    def call(self, name, arguments):
        """Returns what it says to people if it failed."""
        result = self.ask("tools/call", {"name": name, "arguments": arguments})
        texts = [part["text"] for part in result["content"] if part["type"] == "text"]
        return "\n".join(texts) if result.get("isError") else None

    def leave(self):
        self.process.stdin.close()
        self.process.wait()


def answer(question):
    """A person who leaves a form as it is shown, and says yes."""
    fields = question["requestedSchema"]["properties"]
    values = {"boolean": True}
    content = {name: field.get("default", values.get(field["type"])) for name, field in fields.items()}
    return {"action": "accept", "content": content}


def calls(tools):
    """The calls that the suite wants, or one of each tool."""
    known = {"add_numbers": {"a": 5, "b": 3}, "valid_tool": {"region": "here"}}
    schemas = {tool["name"].removeprefix("suite__"): tool["inputSchema"] for tool in tools}
    # Its schema is sent back as Toolhold shows it.
    known["json_schema_echo"] = {"schema": schemas.get("json_schema_2020_12_tool")}
    wanted = CONTEXT.get("toolCalls")
    if wanted is None:
        wanted = [{"name": name, "arguments": known.get(name, {})} for name in schemas]
    return wanted


def main(folder):
    person = Person(folder)
    if SCENARIO == "auth/basic-cimd":
        person.oauth["client_id"] = "https://conformance-test.local/client-metadata.json"
    if "client_id" in CONTEXT:
        person.oauth["client_id"] = CONTEXT["client_id"]
    if "client_secret" in CONTEXT:
        person.environment["SUITE_SECRET"] = CONTEXT["client_secret"]
        person.oauth["secrets.client.env"] = "SUITE_SECRET"
    person.write()
    # Nobody does this for ever.
    for _ in range(3):
        approved, told = person.run("mcp", "approve", "suite", "--yes")
        if approved or not person.follow(told):
            break
    if not approved:
        sys.exit("the server isn't approved")
    client = Client(person)
    for call in calls(client.tools()):
        name, arguments = "suite__" + call["name"], call["arguments"]
        told = client.call(name, arguments)
        if told and person.follow(told):
            client.call(name, arguments)
    client.leave()
    print("called")


with turn(), tempfile.TemporaryDirectory() as folder:
    main(folder)
