"""Sink: the interface of every destination, which sends events and returns an outcome for each."""

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
    """A destination. It retries by itself, for minutes at most, and does not raise if the receiver fails.

    It raises if its folder cannot be written: then the stream stops, as it does if the lake cannot be written.

    The receiver has accepted every event that is reported as delivered. It may have accepted others, too, since its
    answer can be lost.
    """

    def send(self, events: Sequence[Event], name: str) -> list[Outcome]:
        """Send events.

        Args:
            events: the events.
            name: a name for these events, of letters, digits and hyphens; the same in a repetition after a crash.

        Returns:
            An outcome for each event, in their order.
        """
        ...


def in_batches(events: Sequence[Event], size: int, send: Callable[[Sequence[Event]], Outcome]) -> list[Outcome]:
    """Send events in batches of at most ``size``; ``send`` returns the outcome of a batch.

    A refused batch is halved until only the event that the receiver refuses is left. After a batch that failed
    otherwise, the receiver counts as down, and the remaining events are not tried.
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
