"""Standstill: ensures that no step runs, or was cut in a micro-batch, while an operator's command replaces rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from fraudlake.errors import FraudlakeError
from fraudlake.operations import lag

if TYPE_CHECKING:
    from fraudlake.lake import Lake


@contextmanager
def standstill(lake: Lake) -> Iterator[None]:
    """Lock every step that has begun, if the lake can.

    A micro-batch that was cut may have committed its transaction already. When it is repeated, it would not write again
    the rows that were replaced.

    Raises:
        FraudlakeError: a step runs, or was cut within a micro-batch.
    """
    steps = begun_steps(lake)
    with ExitStack() as locks:
        for step in steps:
            locks.enter_context(lake.exclusive(step))
        for step in steps:
            if lake.checkpoint(step).pending_batch() is not None:
                raise FraudlakeError(
                    f"{step} was interrupted within a micro-batch: run '{lag.command_of(step)}' first to finish it"
                )
        yield


def begun_steps(lake: Lake) -> list[str]:
    """Return the steps that have a checkpoint with a micro-batch."""
    return [folder.name for folder in sorted(lake.checkpoints.glob("*")) if not lake.checkpoint(folder.name).is_new]
