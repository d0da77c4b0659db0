"""Standstill: no step runs, and none was cut within a micro-batch, while an operator's command replaces rows."""

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
    """Hold every step that has begun, as far as the place allows.

    The commits of a micro-batch that was cut have its transaction already. Repeated, it would not write again what was
    replaced.

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
                    f"{step} was cut within a micro-batch: run '{lag.command_of(step)}', which finishes it, first"
                )
        yield


def begun_steps(lake: Lake) -> list[str]:
    """Return the steps that have a checkpoint with a micro-batch."""
    return [folder.name for folder in sorted(lake.checkpoints.glob("*")) if not lake.checkpoint(folder.name).is_new]
