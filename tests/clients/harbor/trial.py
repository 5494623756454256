"""Runs the agent of `docs/terminal-bench` as Harbor does, in a folder instead of a container:
`trial.py ROOT AGENT_FOLDER KWARGS MODEL TASK [MARK]`. The time of the agent is over once its events
have the mark. Prints what Harbor knows afterwards, as JSON.

The environment's own paths lie in the folder, as they would lie in a container's root.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities
from harbor.models.agent.context import AgentContext
from harbor.models.task.config import EnvironmentConfig
from harbor.models.trial.paths import TrialPaths

root, agent_folder, kwargs, model, task, *mark = sys.argv[1:]
root = Path(root)
sys.path.insert(0, agent_folder)

from toolhold_agent import ToolholdAgent


class Folder(BaseEnvironment):
    """An environment whose root is a folder of this machine."""

    @staticmethod
    def type():
        return "folder"

    @property
    def capabilities(self):
        return EnvironmentCapabilities()

    def _validate_definition(self):
        pass

    async def start(self, force_build):
        for name in ("app", "logs/agent", "home"):
            (root / name).mkdir(parents=True, exist_ok=True)

    async def stop(self, delete):
        pass

    def inside(self, text):
        return re.sub(r"(?<![\w./])/(installed-agent|logs)\b", rf"{root}/\1", str(text))

    async def upload_file(self, source_path, target_path):
        try:
            os.link(source_path, self.inside(target_path))
        except OSError:
            shutil.copyfile(source_path, self.inside(target_path))

    async def upload_dir(self, source_dir, target_dir):
        shutil.copytree(source_dir, self.inside(target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path, target_path):
        shutil.copyfile(self.inside(source_path), target_path)

    async def download_dir(self, source_dir, target_dir):
        shutil.copytree(self.inside(source_dir), target_dir, dirs_exist_ok=True)

    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None):
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            self.inside(command),
            cwd=cwd or root / "app",
            # Nothing of this machine's environment: what the agent needs, it has to bring.
            env={"HOME": str(root / "home"), "PATH": os.environ["PATH"], **(env or {})},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            stdout, stderr = await process.communicate()
        except asyncio.CancelledError:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return ExecResult(
            stdout=stdout.decode(), stderr=stderr.decode(), return_code=process.returncode
        )


async def over():
    """Waits until the time of the agent is over."""
    events = root / "logs/agent/toolhold-events.jsonl"
    while not mark or not events.exists() or mark[0] not in events.read_text():
        await asyncio.sleep(0.02)


async def main():
    paths = TrialPaths(trial_dir=root / "trial")
    environment = Folder(root, "task", "task__env", paths, EnvironmentConfig())
    await environment.start(False)
    logs = root / "trial/agent"
    # Harbor would look the model up in a list of LiteLLM, which isn't installed here.
    options = {"model_name": model or None, "skip_model_parsing": True, **json.loads(kwargs)}
    agent = ToolholdAgent(logs_dir=logs, **options)
    await agent.setup(environment)
    context, error = AgentContext(), None
    run = asyncio.create_task(agent.run(task, environment, context))
    timer = asyncio.create_task(over())
    await asyncio.wait([run, timer], return_when=asyncio.FIRST_COMPLETED)
    for one in (run, timer):
        one.cancel()
    [ended, _] = await asyncio.gather(run, timer, return_exceptions=True)
    if ended is not None:
        error = [type(ended).__name__, str(ended)]
    await environment.download_dir("/logs/agent", logs)
    agent.populate_context_post_run(context)
    known = {"info": agent.to_agent_info().model_dump(), "context": context.model_dump()}
    print(json.dumps({**known, "error": error}))


asyncio.run(main())
