"""SQL: a statement becomes rows, by a SQL warehouse of the workspace."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from databricks.sdk.service.sql import (
    ExecuteStatementRequestOnWaitTimeout,
    StatementParameterListItem,
    StatementState,
)

from fraudlake.errors import FraudlakeError, first_line
from fraudlake.workspace.client import asking, pauses

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient
    from databricks.sdk.service.sql import EndpointInfo

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
        return (answer.result.data_array if answer.result else None) or []
