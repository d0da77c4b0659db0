"""Cut appends: a micro-batch ends as if its process were killed between the commits that append its rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fraudlake.lake.appender import Appender


@contextmanager
def killed_after(appends: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Raise ``OSError("killed")`` after so many appends, or before the first one."""
    append, done = Appender.append, 0

    def killed(*arguments: Any, **options: Any) -> None:
        nonlocal done
        if done == appends:
            raise OSError("killed")
        append(*arguments, **options)
        done += 1
        if done == appends:
            raise OSError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(Appender, "append", killed)
        yield
