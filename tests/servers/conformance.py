"""The client of the protocol's conformance suite: the real `berth`, with the suite's server at a URL.

Takes the program `berth` and the URL. It approves the server, and calls its tools.
"""

import json
import os
import subprocess
import sys
import tempfile

BERTH, URL = sys.argv[1], sys.argv[-1]
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
ARGUMENTS = {"add_numbers": {"a": 5, "b": 3}, "valid_tool": {"region": "here"}}
folder = tempfile.TemporaryDirectory()


def berth(*words, **options):
    return subprocess.Popen([BERTH, *words], cwd=folder.name, text=True, env=ENVIRONMENT, **options)


home = os.path.join(folder.name, "home")
os.makedirs(os.path.join(home, ".config/berth"), mode=0o700)
ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": home}
table = ["[tools]", 'autonomy = "full"', "[mcp.servers.suite]", f"url = {json.dumps(URL)}"]
with open(os.path.join(home, ".config/berth/berth.toml"), "w") as file:
    file.write("\n".join(table) + "\n")

approved = berth("mcp", "approve", "suite", "--yes").wait()
if approved != 0:
    sys.exit("the server isn't approved")
listed, _ = berth("mcp", "list", "--json", stdout=subprocess.PIPE).communicate()
calls = CONTEXT.get("toolCalls")
if calls is None:
    names = [tool.removeprefix("suite__") for tool in json.loads(listed)[0]["tools"]]
    calls = [{"name": name, "arguments": ARGUMENTS.get(name, {})} for name in names]
for call in calls:
    berth("call", "suite__" + call["name"], json.dumps(call["arguments"])).wait()
