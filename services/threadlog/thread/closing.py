"""Which events may close a claim: the part that steps and calls share."""

from threadlog.events.envelope import Event
from threadlog.ids import EventId
from threadlog.thread.state import Claim


def not_my_claim(
    claim: Claim,
    event: Event,
    named: EventId,
    causes: tuple[EventId, ...],
    *,
    settles: bool,
) -> str | None:
    """Rule `first`: what closes a claim names it, follows from it, and comes from its writer.

    A release may follow from what the claim followed from: when it was sent, its writer did not
    know whether the claim had arrived.
    """
    if claim.event_id != named:
        return "late"
    if event.caused_by not in causes:
        return "wrong_cause"
    return None if settles or event.worker == claim.worker else "not_writer"
