"""Toolhold as an agent of Harbor, the program that runs Terminal-Bench 2. See terminal-bench.md in the
folder above.
"""

import json
import shlex
from pathlib import Path, PurePosixPath
from typing import override

from harbor.agents.installed.base import BaseInstalledAgent, with_prompt_template
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

# The container is thrown away after the task, so it is the limit of what the agent may do, and
# nobody is there to be asked.
CONFIG = """\
[tools]
autonomy = "full"
[tools.file]
allowed_paths = ["/"]
deny_write = []
[tools.shell]
sandbox = "off"
network = "allow"
transactional = false
allowed_commands = ["rm -rf /", "sudo", "mkfs", "dd if=", "curl", "wget", "nc", "ncat", "netcat"]
"""

PROGRAM = "/installed-agent/toolhold"
EVENTS = "toolhold-events.jsonl"

# What `toolhold run` ends with when the model had its try. Whether it solved the task is for the
# verifier to say. Any other exit code is an error of Toolhold or of the model's provider.
TRIED = "0|1|3|5"


class ToolholdAgent(BaseInstalledAgent):
    """Runs `toolhold run` in the task's container."""

    def __init__(self, *args, binary: str, toolhold_toml: str | None = None, **kwargs):
        """`binary`: the static program for the container's processor. `toolhold_toml`: a file with
        the whole configuration, instead of the one that is made from the name of the model.
        """
        super().__init__(*args, **kwargs)
        self.binary = Path(binary)
        self.toolhold_toml = Path(toolhold_toml).read_text() if toolhold_toml else None

    @staticmethod
    @override
    def name() -> str:
        return "toolhold"

    @override
    def get_version_command(self) -> str | None:
        return f"{PROGRAM} --version"

    @override
    def parse_version(self, stdout: str) -> str:
        return stdout.split()[-1]

    @override
    async def install(self, environment: BaseEnvironment) -> None:
        await environment.upload_file(self.binary, PROGRAM)
        await self.exec_as_root(environment, f"chmod 755 {PROGRAM}")

    @override
    async def configure(self, environment: BaseEnvironment) -> None:
        config = shlex.quote(self.toolhold_toml or self.made_config())
        folder = '"$HOME/.config/toolhold"'
        command = f"mkdir -p {folder} && printf %s {config} > {folder}/toolhold.toml"
        await self.exec_as_agent(environment, command)

    def made_config(self) -> str:
        if not self.provider():
            raise ValueError("name a model as PROVIDER/MODEL, or give a file as `toolhold_toml`")
        key = f'secrets.key.env = "{self.key_name()}"'
        return f"{CONFIG}[providers.{self.provider()}]\n{key}\n"

    def provider(self) -> str:
        """Toolhold's name of the model's provider; empty if it follows from the configuration."""
        provider, slash, _ = (self.model_name or "").partition("/")
        return provider if slash else ""

    def key_name(self) -> str:
        """The variable that the key of the provider has, by the usual names."""
        return f"{self.provider()}_api_key".upper().replace("-", "_")

    @override
    @with_prompt_template
    async def run(
        self, instruction: str, environment: BaseEnvironment, context: AgentContext
    ) -> None:
        words = [PROGRAM, "run", "--json", "--yes"]
        if self.model_name:
            words += ["--model", self.model_name]
        words += ["--", instruction]
        key = self._get_env(self.key_name()) if self.provider() else None
        events, log = self.in_logs(EVENTS), self.in_logs("toolhold.log")
        await self.exec_as_agent(
            environment,
            f"{shlex.join(words)} < /dev/null > {events} 2> {log}; code=$?; "
            f"case $code in {TRIED}) ;; *) tail -n 1 {events} >&2; cat {log} >&2; exit $code;; esac",
            env={self.key_name(): key} if key else None,
        )

    def in_logs(self, name: str) -> PurePosixPath:
        return self.environment_logs_dir / name

    @override
    def populate_context_post_run(self, context: AgentContext) -> None:
        """Reads the tokens from the events that Harbor has fetched. An answer says what it took,
        so they are known too of a task whose time was over.
        """
        lines = (self.logs_dir / EVENTS).read_text().splitlines()
        events = []
        for line in lines:
            try:
                events.append(json.loads(line))
            except json.JSONDecodeError:
                # The last line of a program that was killed.
                break
        # An error before the task has no `event`.
        ended = [event for event in events if event.get("event") == "ended"]
        answers = [event["spent"] for event in events if event.get("event") == "answer"]
        spent = [ended[-1]["spent"]] if ended else answers
        keys = ("cache_read", "output", "cost")
        total = {key: sum(each[key] or 0 for each in spent) for key in keys}
        read = ("input", "cache_read", "cache_written")
        context.n_input_tokens = sum(each[key] for each in spent for key in read)
        context.n_cache_tokens = total["cache_read"]
        context.n_output_tokens = total["output"]
        # The cost of a model without configured prices is null.
        context.cost_usd = total["cost"] or None
        context.metadata = {
            "turns": sum(each["turns"] for each in spent),
            "end": ended[-1]["kind"] if ended else "unknown",
            "reason": ended[-1].get("reason") if ended else None,
        }
