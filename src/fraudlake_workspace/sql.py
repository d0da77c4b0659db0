"""SQL: runs statements on a SQL warehouse of the workspace, and returns their rows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from databricks.sdk.service.sql import (
    Disposition,
    ExecuteStatementRequestOnWaitTimeout,
    Format,
    StatementParameterListItem,
    StatementResponse,
    StatementState,
)

from fraudlake.errors import FraudlakeError, first_line
from fraudlake_workspace import answers
from fraudlake_workspace.client import asking, pauses

if TYPE_CHECKING:
    import pyarrow as pa
    from databricks.sdk import WorkspaceClient
    from databricks.sdk.service.sql import EndpointInfo, ResultData

_UNDER_WAY = {StatementState.PENDING, StatementState.RUNNING}


def warehouse(client: WorkspaceClient, wanted: str | None) -> EndpointInfo:
    """Return the warehouse with an id or name; by default the profile's, or else the first, preferring running ones.

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
        return self._rows(self._answer(statement, parameters, Disposition.INLINE))

    def table(self, statement: str) -> pa.Table:
        """Run a query, wait until it has ended, and return its rows; times in UTC.

        The rows come as Arrow, through links to the workspace's storage, since rows of text lack microseconds and are
        limited to 25 MiB. Text is used only if a warehouse offers no links.

        Raises:
            FraudlakeError: the statement failed, or the storage cannot be reached.
        """
        try:
            answer = self._answer(statement, {}, Disposition.EXTERNAL_LINKS)
        except FraudlakeError as error:
            if "disposition" not in str(error).lower():
                raise
            answer = self._answer(statement, {}, Disposition.INLINE)
            return answers.parse_texts(self._rows(answer), answers.schema(answer.manifest))
        links = (link for part in self._parts(answer) for link in part.external_links or ())
        return answers.fetch_links(links, answers.schema(answer.manifest))

    def _answer(self, statement: str, parameters: Mapping[str, str], disposition: Disposition) -> StatementResponse:
        api = self.client.statement_execution
        with asking(self.client, "SQL"):
            answer = api.execute_statement(
                statement,
                self.warehouse_id,
                catalog=self.catalog,
                schema=self.schema,
                disposition=disposition,
                format=Format.JSON_ARRAY if disposition is Disposition.INLINE else Format.ARROW_STREAM,
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
        return [row for part in self._parts(answer) for row in part.data_array or ()]

    def _parts(self, answer: StatementResponse) -> Iterator[ResultData]:
        """Yield the parts of an answer, each requested only when it is needed: its links expire after minutes."""
        part = answer.result
        while part is not None:
            yield part
            following = (part.external_links[-1] if part.external_links else part).next_chunk_index
            if following is None:
                return
            with asking(self.client, "SQL"):
                part = self.client.statement_execution.get_statement_result_chunk_n(str(answer.statement_id), following)
