"""Drives a server with the official Python SDK, as the lines of JSON on stdin say, and tells what came of each in a line on stdout."""

import json
import os
import sys

import anyio
import httpx2
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

# The revision without a handshake.
MODERN = "2026-07-28"


class Driver:
    def __init__(self):
        self.tasks = None
        self.client = None
        # What the person at this client answers, and what they were asked.
        self.answer = None
        self.asked = []
        # The call that runs while the next lines are read: how to stop it, and what it came to.
        self.running = None
        # What it has told of itself, and that there is something new.
        self.progress = []
        self.hearing = anyio.Event()
        # The server has told that its tools are others.
        self.told = anyio.Event()
        self.listening = anyio.Event()

    async def message(self, message):
        if isinstance(message, types.ToolListChangedNotification):
            self.told.set()

    async def elicited(self, _context, params):
        self.asked.append(params.message)
        return types.ElicitResult.model_validate(self.answer or {"action": "cancel"})

    async def listen(self):
        async with self.client.listen(tools_list_changed=True) as events:
            self.listening.set()
            async for _event in events:
                self.told.set()

    def reach(self, step):
        """The client for a server, not connected yet."""
        if "url" in step:
            bearer = httpx2.AsyncClient(headers={"Authorization": f"Bearer {step['token']}"}, timeout=60)
            server = streamable_http_client(step["url"], http_client=bearer)
        else:
            server = StdioServerParameters(command=step["command"], args=step["args"], env=dict(os.environ))
        self.client = Client(
            server,
            mode="auto" if step["revision"] == MODERN else "legacy",
            client_info=types.Implementation(name="drive", version="1"),
            message_handler=self.message,
            elicitation_callback=self.elicited if step.get("asks") else None,
        )
        return self.client

    async def connect(self, step):
        if step["revision"] == MODERN:
            self.tasks.start_soon(self.listen)
            await self.listening.wait()
        return {"server": self.client.server_info.name, "version": self.client.protocol_version}

    async def list(self, _step):
        return {"tools": [tool.name for tool in (await self.client.list_tools(cache_mode="refresh")).tools]}

    async def call(self, step):
        """Calls a tool. What fails by the protocol is told as `error`."""
        self.answer = step.get("answer")
        self.asked = []
        self.progress = []

        async def told(_done, _total, message):
            self.progress.append(message)
            self.hearing.set()

        try:
            result = await self.client.call_tool(step["name"], step.get("arguments"), progress_callback=told)
        except Exception as error:
            return {"error": repr(error), "asked": self.asked}
        text = "\n".join(part.text for part in result.content if part.type == "text")
        return {"failed": bool(result.is_error), "text": text, "structured": result.structured_content, "asked": self.asked}

    async def begin(self, step):
        running = self.running = {"scope": anyio.CancelScope(), "ended": anyio.Event(), "came": {"error": "stopped"}}

        async def run():
            with running["scope"]:
                running["came"] = await self.call(step)
            running["ended"].set()

        self.tasks.start_soon(run)
        return {}

    async def heard(self, step):
        while step["message"] not in self.progress:
            self.hearing = anyio.Event()
            await self.hearing.wait()
        return {}

    async def abort(self, _step):
        self.running["scope"].cancel()
        await self.running["ended"].wait()
        return self.running["came"]

    async def changed(self, _step):
        await self.told.wait()
        self.told = anyio.Event()
        return {}

    async def prompt(self, step):
        result = await self.client.get_prompt(step["name"], step.get("arguments"))
        return {"text": "\n".join(message.content.text for message in result.messages)}

    async def read(self, step):
        result = await self.client.read_resource(step["uri"])
        return {"text": "\n".join(part.text for part in result.contents)}


async def main():
    step = json.loads(sys.stdin.readline())
    driver = Driver()
    async with driver.reach(step), anyio.create_task_group() as driver.tasks:
        while step["do"] != "close":
            try:
                came = await getattr(driver, step["do"])(step)
            except Exception as error:
                came = {"error": repr(error)}
            print(json.dumps(came), flush=True)
            step = json.loads(await anyio.to_thread.run_sync(sys.stdin.readline))
        driver.tasks.cancel_scope.cancel()
    print("{}", flush=True)


anyio.run(main)
