"""A stream that has nothing to do costs no query."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from fraudlake.streams import stream
from fraudlake.streams.stream import Done, Stream


def test_the_rows_of_a_stream_that_has_nothing_new_to_read_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_require_checkpoint", lambda lake, one: None)
    monkeypatch.setattr(stream, "_unread_rows", lambda lake, one: 0)
    monkeypatch.setattr(stream, "RowCount", lambda *_: SimpleNamespace(rows=0, batches=0))
    lake: Any = SimpleNamespace(exclusive=nullcontext)

    def asked(*_: object) -> Any:
        pytest.fail("it was asked for its rows")

    assert stream.run(lake, [Stream("refine", asked, asked)], "available-now") == [Done("refine", 0, 0)]
