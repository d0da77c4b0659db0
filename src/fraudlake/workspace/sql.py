"""SQL: a statement becomes rows, by a SQL warehouse of the workspace."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from databricks.sdk.service.sql import (
    ExecuteStatementRequestOnWaitTimeout,
    StatementParameterListItem,
    StatementResponse,
    StatementState,
)

from fraudlake.errors import FraudlakeError, first_line
from fraudlake.workspace.client import asking, pauses

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient
    from databricks.sdk.service.sql import EndpointInfo

_TYPES = {
    "INT": pa.int32(),
    "LONG": pa.int64(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}
"""Types of the columns of answers, by their names there; others are texts."""
_UNDER_WAY = {StatementState.PENDING, StatementState.RUNNING}


def warehouse(client: WorkspaceClient, wanted: str | None) -> EndpointInfo:
    """Return the warehouse of this id or name; by default the profile's, or else the first, running ones before others.

    Raises:
        FraudlakeError: there is no such warehouse that this identity may use.
    """
    wanted = wanted or client.config.warehouse_id
    with asking(client, "SQL warehouses"):
        usable = list(client.warehouses.list())
    matches = [warehouse for warehouse in usable if wanted in (None, warehouse.id, warehouse.name)]
    if not matches:
        which = f"no SQL warehouse '{wanted}'" if wanted else "no SQL warehouse"
        raise FraudlakeError(f"there is {which} that you may use: create it, or ask for CAN USE on it")
    return min(matches, key=lambda match: (str(match.state and match.state.value) != "RUNNING", match.name or ""))


@dataclass(frozen=True)
class Sql:
    """Runs statements on a warehouse in a schema."""

    client: WorkspaceClient
    warehouse_id: str
    catalog: str
    schema: str

    def rows(self, statement: str, **parameters: str) -> list[list[str]]:
        """Run a statement, wait until it has ended, and return its rows as strings.

        Raises:
            FraudlakeError: the statement failed.
        """
        return self._rows(self._answer(statement, parameters))

    def table(self, statement: str) -> pa.Table:
        """Run a query, wait until it has ended, and return its rows; times in UTC.

        Raises:
            FraudlakeError: the statement failed.
        """
        answer = self._answer(statement, {})
        described = answer.manifest.schema.columns if answer.manifest and answer.manifest.schema else None
        rows = self._rows(answer)
        columns = [(str(one.name), str(one.type_name and one.type_name.value)) for one in described or []]
        return pa.table(
            {name: _typed([row[place] for row in rows], kind) for place, (name, kind) in enumerate(columns)}
        )

    def _answer(self, statement: str, parameters: Mapping[str, str]) -> StatementResponse:
        api = self.client.statement_execution
        with asking(self.client, "SQL"):
            answer = api.execute_statement(
                statement,
                self.warehouse_id,
                catalog=self.catalog,
                schema=self.schema,
                parameters=[StatementParameterListItem(name, value=value) for name, value in parameters.items()],
                wait_timeout="30s",
                on_wait_timeout=ExecuteStatementRequestOnWaitTimeout.CONTINUE,
            )
            for pause in pauses(5.0):
                if answer.status is None or answer.status.state not in _UNDER_WAY:
                    break
                time.sleep(pause)
                answer = api.get_statement(str(answer.statement_id))
        if answer.status is None or answer.status.state is not StatementState.SUCCEEDED:
            error = answer.status.error if answer.status else None
            reason = first_line((error.message if error else None) or "no reason given")
            raise FraudlakeError(f"SQL failed ({reason}): {' '.join(statement.split())[:120]}")
        return answer

    def _rows(self, answer: StatementResponse) -> list[list[str]]:
        """Return the rows of an answer, which come in parts."""
        api, part = self.client.statement_execution, answer.result
        rows = (part.data_array if part else None) or []
        while part is not None and part.next_chunk_index is not None:
            with asking(self.client, "SQL"):
                part = api.get_statement_result_chunk_n(str(answer.statement_id), part.next_chunk_index)
            rows += part.data_array or []
        return rows


def _typed(texts: list[str | None], kind: str) -> pa.Array:
    """Return a column of an answer, whose values are texts or null, in its type in SQL."""
    if kind == "ARRAY":
        return pa.array([None if text is None else json.loads(text) for text in texts])
    column = pa.array(texts, pa.string())
    if kind == "BOOLEAN":
        return pc.equal(column, "true")
    return column.cast(_TYPES.get(kind, pa.string()))
