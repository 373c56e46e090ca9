"""Sections of the fleet dashboard about what people notice: turns, freshness, requests."""

from typing import Final

from deploy.grafana.panels import Panel, Query, Section, quantile, rate

GLANCE: Final = Section(
    "At a glance",
    (
        Panel(
            title="Bad turns, 1 h",
            text="Share of turns without an output in 30 s, or ended in an error. Objective: 1 %.",
            unit="percentunit",
            queries=(Query("threadlog:turns_bad:rate1h / threadlog:turns:rate1h", "bad"),),
            shape="stat",
            width=6,
            alerts=("TurnSLOBurn",),
            limit=0.01,
        ),
        Panel(
            title="Failed requests, 1 h",
            text="Share of requests that the gateways answered with 5xx. Objective: 0.1 %.",
            unit="percentunit",
            queries=(Query("threadlog:http_failed:rate1h / threadlog:http:rate1h", "failed"),),
            shape="stat",
            width=6,
            alerts=("TurnSLOBurn",),
            limit=0.001,
        ),
        Panel(
            title="Oldest unhandled event",
            text="The worst age over all groups; 0 when all have caught up.",
            unit="s",
            queries=(Query("max(threadlog_consumer_lag_seconds)", "age"),),
            shape="stat",
            width=6,
            alerts=("LagAgeHigh",),
            limit=15,
        ),
        Panel(
            title="Dependencies that do not answer",
            text="Pairs of a process and a dependency without an answer.",
            unit="none",
            queries=(
                Query("count(threadlog_dependency_up == 0) or vector(0)", "without an answer"),
            ),
            shape="stat",
            width=6,
            alerts=("DependencyDown",),
            limit=1,
        ),
    ),
)

TURNS: Final = Section(
    "Turns",
    (
        Panel(
            title="Burn of the turn budget",
            text="Share of bad turns over the 1 % allowed, by window. Page: 14.4, ticket: 6.",
            unit="short",
            queries=tuple(
                Query(f"threadlog:turns_bad:rate{x} / threadlog:turns:rate{x} / 0.01", x)
                for x in ("5m", "30m", "1h", "6h")
            ),
            alerts=("TurnSLOBurn",),
            limit=14.4,
        ),
        Panel(
            title="First output",
            text="From the message until the turn says something: median and p95.",
            unit="s",
            queries=(
                Query(quantile(0.5, "threadlog_turn_first_output_seconds"), "median"),
                Query(quantile(0.95, "threadlog_turn_first_output_seconds"), "p95"),
            ),
            limit=30,
        ),
        Panel(
            title="Turns ended",
            text="A second, by outcome.",
            unit="ops",
            queries=(
                Query(rate("threadlog_turn_duration_seconds_count", "outcome"), "{{outcome}}"),
            ),
        ),
    ),
)

FRESHNESS: Final = Section(
    "Freshness",
    (
        Panel(
            title="Age of the oldest unhandled event",
            text="By group; 0 when caught up.",
            unit="s",
            queries=(Query("max by (group) (threadlog_consumer_lag_seconds)", "{{group}}"),),
            alerts=("LagAgeHigh", "ConsumerStuck", "MeteringStalled"),
            limit=60,
        ),
        Panel(
            title="From append to view, p99",
            text="How long after its append a read shows an event.",
            unit="s",
            queries=(
                Query(quantile(0.99, "threadlog_event_end_to_end_seconds", "hop"), "{{hop}}"),
            ),
        ),
        Panel(
            title="Rebalances in 15 minutes",
            text="As one member sees them, by group.",
            unit="none",
            queries=(
                Query(
                    "max by (group) (increase(threadlog_consumer_rebalances_total[15m]))",
                    "{{group}}",
                ),
            ),
            alerts=("RebalanceStorm",),
            limit=6,
        ),
    ),
)

GATEWAY: Final = Section(
    "Gateway: rate, errors, duration",
    (
        Panel(
            title="Requests",
            text="Requests answered a second, by route.",
            unit="reqps",
            queries=(Query(rate("threadlog_http_requests_total", "route"), "{{route}}"),),
        ),
        Panel(
            title="Requests by code",
            text="5xx is our fault, 4xx the caller's.",
            unit="reqps",
            queries=(Query(rate("threadlog_http_requests_total", "code"), "{{code}}"),),
            alerts=("TurnSLOBurn",),
        ),
        Panel(
            title="Duration of requests, p99",
            text="From head to end of the answer, by route; streams last long.",
            unit="s",
            queries=(
                Query(
                    quantile(0.99, "threadlog_http_request_duration_seconds", "route"),
                    "{{route}}",
                ),
            ),
        ),
    ),
)
