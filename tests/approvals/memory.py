"""A store in memory for tests of the approvals, and a world of values that approved requests change."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from fraudlake import tables
from fraudlake.approvals.gate import Effect
from fraudlake.approvals.log import Proposal
from fraudlake.approvals.request import Request
from fraudlake.settings import Settings

NOON = datetime(2026, 3, 7, 12, tzinfo=UTC)


class Memory:
    """What the approvals need of a store, for one table of events."""

    settings = Settings.model_construct(approvals=2)
    name = "memory"

    def __init__(self) -> None:
        self.events = tables.SILVER_APPROVAL_EVENTS.schema.empty_table()
        self.meanwhile: Callable[[], None] = lambda: None
        """What another writer does between a reading and a writing."""

    def query(self, statement: str, *read: tables.Table) -> pa.Table:
        return self.events.drop_columns(["date"])

    def rows(self, table: tables.Table) -> pa.Table:
        given = {"change": 1, "setting": "approvals", "value": json.dumps(2)}
        return pa.Table.from_pylist([given], tables.SILVER_DEFINITION.schema)

    def has_rows(self, table: tables.Table, condition: str = "true") -> bool:
        return False

    def insert_all(self, table: tables.Table, rows: pa.Table, key: str) -> None:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        if not {*rows[key].to_pylist()} & {*self.events[key].to_pylist()}:
            self.events = pa.concat_tables([self.events, rows])


class World:
    """Named values; a request sets one, on the value that it had when it was asked."""

    def __init__(self) -> None:
        self.values = {"x": 0, "y": 0}
        self.done: list[int] = []
        """The numbers of the requests that took effect, in order."""
        self.effect = Effect(self._state, self._carry_out)

    def wanted(self, name: str, value: int) -> Proposal:
        return Proposal("rules", f"{name} = {value}", {name: self.values[name]}, {name: value}, {name: value})

    def _state(self, place: Any, request: Request) -> dict[str, Any]:
        return {name: self.values[name] for name in request.arguments}

    def _carry_out(self, place: Any, request: Request) -> None:
        if self._state(place, request) != request.after:
            self.values |= request.arguments
            self.done.append(request.number)
