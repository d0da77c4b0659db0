"""Sink: the interface of every destination: events go out, and an outcome for each comes back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from fraudlake.delivery.event import Event


@dataclass(frozen=True)
class Outcome:
    """The outcome of an event: delivered, or the ``reason`` why not."""

    attempts: int
    """Number of attempts; 0 if the receiver was known to be down."""
    reason: str | None = None
    is_refusal: bool = False
    """Whether the receiver works but refuses the event."""


class Sink(Protocol):
    """A destination. It retries by itself, for minutes at most; a receiver that fails raises nothing.

    A folder that cannot be written does raise: the stream stops there, as it does if the lake cannot be written.

    An event that is reported as delivered has been taken over by the receiver. One that is not may have arrived, too:
    an answer can be lost on the way.
    """

    def send(self, events: Sequence[Event], name: str) -> list[Outcome]:
        """Send events.

        Args:
            events: the events.
            name: names them together: letters, digits and hyphens. A repetition after a crash has the same name.

        Returns:
            An outcome for each event, in their order.
        """
        ...


def in_batches(events: Sequence[Event], size: int, send: Callable[[Sequence[Event]], Outcome]) -> list[Outcome]:
    """Send events in batches of at most ``size``; ``send`` returns the outcome of a batch.

    A batch that is refused is halved until the event that the receiver does not take is alone. After a batch that
    failed otherwise, the receiver counts as down: what is left is not tried.
    """
    outcomes: list[Outcome] = []
    waiting = deque(events[start : start + size] for start in range(0, len(events), size))
    while waiting:
        batch = waiting.popleft()
        outcome = send(batch)
        if outcome.is_refusal and len(batch) > 1:
            half = len(batch) // 2
            waiting.extendleft((batch[half:], batch[:half]))
            continue
        outcomes += [outcome] * len(batch)
        if outcome.reason is not None and not outcome.is_refusal:
            outcomes += [Outcome(0, f"not tried: {outcome.reason}")] * (len(events) - len(outcomes))
            break
    return outcomes
