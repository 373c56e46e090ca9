"""The services on one file: which adapter is which port."""

from collections.abc import Mapping

from threadlog.adapters.memory.notify import MemoryNotify
from threadlog.adapters.sqlite.blobs import SqliteBlobs
from threadlog.adapters.sqlite.file import SqliteFile
from threadlog.adapters.sqlite.log import SqliteLog
from threadlog.adapters.sqlite.members import LockMembers
from threadlog.adapters.sqlite.snapshots import SqliteSnapshots
from threadlog.adapters.sqlite.views import SqliteViews
from threadlog.bootstrap.models import MissingModel
from threadlog.bootstrap.services import Ports, Services
from threadlog.clock import SystemClock
from threadlog.ids import WorkerId
from threadlog.planner.prices import Prices
from threadlog.ports.model import Model
from threadlog.ports.tools import Tools
from threadlog.runtime.tracer import Tracer


def file_ports(
    file: SqliteFile, models: Mapping[str, Model], tools: Tools, prices: Prices, tracer: Tracer
) -> Ports:
    """What the services on this file need; nothing is counted."""
    clock, views = SystemClock(), SqliteViews(file)
    return Ports(
        log=SqliteLog(file),
        views=views,
        partition=views,
        snapshots=SqliteSnapshots(file),
        blobs=SqliteBlobs(file, clock=clock),
        notify=MemoryNotify(),
        members=LockMembers(),
        clock=clock,
        models=models,
        unknown_model=MissingModel(),
        tools=tools,
        prices=prices,
        tracer=tracer,
    )


def file_services(ports: Ports, instance: str) -> Services:
    """The services of process `instance`."""
    planner, runner = WorkerId(f"p-{instance}"), WorkerId(f"t-{instance}")
    assert isinstance(ports.members, LockMembers)
    ports.members.register(planner)
    ports.members.register(runner)
    return Services(ports, planner, runner)
