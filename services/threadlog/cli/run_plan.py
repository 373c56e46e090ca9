"""What `run` will do: the settings of its thread, and the folder that it works in."""

from dataclasses import dataclass
from pathlib import Path

from threadlog.bootstrap.embedded import make_tools
from threadlog.bootstrap.models import model_choice
from threadlog.bootstrap.url_link import NO_COPY, UrlLink
from threadlog.commands.requests import ThreadSettings
from threadlog.errors import UsageError
from threadlog.events.content import ModelRef
from threadlog.events.thread import Limits, Workspace
from threadlog.ids import LOCAL_TENANT, ThreadId, WorkspaceId, draw
from threadlog.ports.tools import WorkspaceRef
from threadlog.settings import Settings


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What `run` was asked for. `thread` None: a new one; members that are None: the defaults."""

    prompt: str
    thread: str | None = None
    workspace: Path | None = None
    is_copied: bool = False
    model: str | None = None
    script: Path | None = None
    system: str | None = None
    steps_max: int | None = None
    timeout_s: float | None = None
    is_json: bool = False
    is_hinting: bool = True
    """Whether the last line says how to look at the thread."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What the request comes to.

    Shapes:  `configured` None: the thread keeps what it has. `folder` None: no folder of this
             machine is named.
    """

    configured: ThreadSettings | None
    folder: Path | None


async def plan_here(settings: Settings, request: RunRequest) -> RunPlan:
    """The plan of a run on the file, or in the cluster.

    Raises:  UsageError: it does not fit together. RefusedError: no command may work in the folder.
    """
    folder = await _folder(settings, request)
    model: ModelRef | None = None
    if request.script is not None and request.model is None:
        model = ModelRef(provider="scripted", name=request.script.stem or "scripted")
    elif request.thread is None or request.model is not None:
        model = await model_choice(settings, request.model, request.script)
    workspace = None
    if folder is not None and request.is_copied:
        workspace = Workspace(kind="managed")
    elif folder is not None:
        workspace = Workspace(kind="attached", path=str(folder))
    return RunPlan(_settings(request, model, workspace), folder)


async def plan_there(link: UrlLink, settings: Settings, request: RunRequest) -> RunPlan:
    """The plan of a run through a gateway: on a folder of this machine only if it is its own.

    Raises:  UsageError: a folder is named that the gateway cannot work in, or no model is known.
    """
    if request.is_copied:
        raise UsageError(NO_COPY)
    if request.workspace is not None and not link.attaches:
        raise UsageError(
            f"--workspace: {link.base} does not work in folders of this machine: leave it out, "
            "and the thread gets a workspace of its own"
        )
    model = None
    if request.thread is None or request.model is not None:
        model = await link.model_choice(request.model or settings.model)
    folder = None
    if link.attaches and (request.thread is None or request.workspace is not None):
        folder = (request.workspace or Path()).resolve()
    workspace = None
    if folder is not None:
        workspace = Workspace(kind="attached", path=str(folder))
    elif request.thread is None:
        workspace = Workspace(kind="managed")
    return RunPlan(_settings(request, model, workspace), folder)


async def _folder(settings: Settings, request: RunRequest) -> Path | None:
    """The folder to work in, checked where the calls run in this process; None: as it is.

    Raises:  RefusedError: no command may work there.
    """
    if request.is_copied and request.thread is not None:
        raise UsageError("--copy makes a workspace for a new thread: leave out --thread")
    if request.thread is not None and request.workspace is None:
        return None
    folder = (request.workspace or Path()).resolve()
    if not request.is_copied and not settings.is_cluster:
        ref = WorkspaceRef(WorkspaceId(draw()), LOCAL_TENANT, ThreadId(draw()), folder)
        await make_tools(settings).prepare(ref)
    return folder


def _settings(
    request: RunRequest, model: ModelRef | None, workspace: Workspace | None
) -> ThreadSettings | None:
    chosen = ThreadSettings(
        model=model,
        system_prompt=request.system,
        limits=None if request.steps_max is None else Limits(steps_max=request.steps_max),
        workspace=workspace,
    )
    return None if chosen == ThreadSettings() else chosen
