"""The metrics of services that share one process and one file: one page for all of them.

What is of Kafka is not shown: there are no groups, topics and clients of a log here.
"""

import asyncio
from contextlib import ExitStack
from dataclasses import replace
from typing import Literal

from threadlog.bootstrap.actor_sample import ActorSample
from threadlog.bootstrap.loop_health import Health
from threadlog.bootstrap.metered import MeteredLog
from threadlog.bootstrap.models import PROVIDERS, named_models
from threadlog.bootstrap.services import Services
from threadlog.clock import SystemClock
from threadlog.gateway.meter import GatewayMeter
from threadlog.planner.meter import PlannerMeter
from threadlog.runtime.acting import ActorPorts
from threadlog.runtime.meter import Meter
from threadlog.settings import Settings
from threadlog.telemetry.gateway import HttpMeter
from threadlog.telemetry.metrics import Metrics
from threadlog.telemetry.planner import TurnMeter
from threadlog.telemetry.server import MetricsServer
from threadlog.telemetry.service import ServiceMeter
from threadlog.telemetry.table import Service

_SAMPLE_S = 1.0


class FileCounting:
    """Implements `services.Counting`."""

    def __init__(self, settings: Settings) -> None:
        self.metrics = Metrics(revision=settings.revision)
        self.metrics.models.allow(named_models(settings), PROVIDERS)
        self._closing = ExitStack()

    def actor(self, ports: ActorPorts, service: Literal["planner", "tool_runner"]) -> ActorPorts:
        """The same ports, with what is appended and done counted."""
        log = MeteredLog(ports.log, self.metrics, service, ports.clock)
        return replace(ports, log=log, meter=self._meter(service))

    def projection(self) -> Meter:
        """The counters of the projection."""
        return self._meter("projection")

    def turns(self) -> PlannerMeter:
        """What the planner counts beside."""
        return TurnMeter(self.metrics)

    def gateway(self) -> GatewayMeter:
        """The counters of the gateway."""
        return HttpMeter(self.metrics)

    def _meter(self, service: Service) -> ServiceMeter:
        return ServiceMeter(self.metrics, service, SystemClock().now_ms)

    def serve(self, settings: Settings, services: Services) -> str:
        """Metrics and health are served until `close`; host and port.

        Raises:  RefusedError: the address cannot be served.
        """
        health = Health(SystemClock())
        server = MetricsServer(
            self.metrics,
            port=settings.metrics.port or 0,
            host=settings.metrics.host,
            is_alive=health.is_alive,
            is_ready=health.is_ready,
        )
        self._closing.callback(server.close)
        sampling = asyncio.create_task(self._sample(health, services))
        self._closing.callback(sampling.cancel)
        host, port = server.address
        return f"{host}:{port}"

    def close(self) -> None:
        """Nothing is served any more."""
        self._closing.close()

    async def _sample(self, health: Health, services: Services) -> None:
        clock, metrics = SystemClock(), self.metrics
        planner = ActorSample(metrics, "planner")
        runner = ActorSample(metrics, "tool_runner")
        while True:
            health.beat("a service has ended" if services.has_failed else None)
            planner.sample([services.planner], clock.mono_ms())
            runner.sample([services.tool_runner], clock.mono_ms())
            metrics.quarantined(len(services.broken))
            await asyncio.sleep(_SAMPLE_S)
