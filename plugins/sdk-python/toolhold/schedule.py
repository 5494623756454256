"""Calls of the plugin's own tools at a later time. Ask for `schedule` in the manifest.

    schedule.put(Task.cron("tidy", "0 4 * * *", Call("notes__tidy", {"days": 30})))

In unit tests, tasks are kept and never run.
"""

import dataclasses
import json

from . import _host


@dataclasses.dataclass
class Call:
    """A call of a tool by its full name, as `notes__tidy`."""

    tool: str
    arguments: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Task:
    """A task, which replaces the one with the same name.

    kind, when: `once` with a time of RFC 3339 or a duration such as `PT15M`, `every` with seconds, or `cron`.
    action: a Call, or a str on which Toolhold's own agent works (third-party plugins can't do that).
    zone: a name of the time zone database. None: the machine's.
    missed: what becomes of times that passed while nothing ran: `once`, `all` or `skip`.
    """

    name: str
    kind: str
    when: str
    action: Call | str
    zone: str | None = None
    missed: str = "once"

    @classmethod
    def once(cls, name, when, action):
        """A task that runs once, at a time or after a duration."""
        return cls(name, "once", when, action)

    @classmethod
    def every(cls, name, seconds, action):
        """A task that runs every so many seconds."""
        return cls(name, "every", str(seconds), action)

    @classmethod
    def cron(cls, name, expression, action):
        """A task that runs by a cron expression."""
        return cls(name, "cron", expression, action)


@dataclasses.dataclass
class State:
    """A task as it stands. next: when it runs next, or None.

    last: its last run, or None: due, started, ended, state, missed and output.
    """

    task: Task
    next: str | None
    paused: bool = False
    last: object = None


def put(task):
    """Keeps a task, and returns its State."""
    texts = [_host.as_text(getattr(task, name), name) for name in ("name", "kind", "when", "missed")]
    zone = None if task.zone is None else _host.as_text(task.zone, "a zone")
    if not _host.IN_COMPONENT:
        state = _host.standin.tasks[task.name] = State(task, "2030-01-01T00:00:00Z")
        return state
    schedule = _interface()
    if isinstance(task.action, Call):
        call = schedule.ToolCall(_host.as_text(task.action.tool, "a tool"), json.dumps(task.action.arguments))
        action = schedule.Action_Call(call)
    else:
        action = schedule.Action_Prompt(_host.as_text(task.action, "a prompt"))
    name, kind, when, missed = texts
    return _state(_host.checked(schedule.put, schedule.Task(name, kind, when, zone, missed, action, None)))


def remove(name):
    """Removes a task and its runs. False: there is none with this name."""
    if not _host.IN_COMPONENT:
        return _host.standin.tasks.pop(name, None) is not None
    return _host.checked(_interface().remove, _host.as_text(name, "a name"))


def pause(name, paused=True):
    """Has a task wait, or resumes it. False: there is none with this name."""
    if not _host.IN_COMPONENT:
        state = _host.standin.tasks.get(name)
        if state:
            state.paused = paused
        return state is not None
    return _host.checked(_interface().pause, _host.as_text(name, "a name"), bool(paused))


def run_soon(name):
    """Has a task run once as soon as possible. False: there is none with this name."""
    if not _host.IN_COMPONENT:
        return name in _host.standin.tasks
    return _host.checked(_interface().run_soon, _host.as_text(name, "a name"))


def tasks():
    """The plugin's tasks for the principal of the call, sorted by name."""
    if not _host.IN_COMPONENT:
        return [state for _, state in sorted(_host.standin.tasks.items())]
    return [_state(each) for each in _host.checked(_interface().tasks)]


def runs(name):
    """The last 20 runs of a task, the latest first: objects with due, started, ended, state, missed and output."""
    if not _host.IN_COMPONENT:
        return []
    return _host.checked(_interface().runs, _host.as_text(name, "a name"))


def _state(state):
    task, action = state.task, state.task.action.value
    if isinstance(state.task.action, _interface().Action_Call):
        action = Call(action.tool, json.loads(action.arguments))
    task = Task(task.name, task.kind, task.when, action, task.zone, task.missed)
    return State(task, state.next, state.paused, state.last)


def _interface():
    return _host.imported("schedule", "schedule")
