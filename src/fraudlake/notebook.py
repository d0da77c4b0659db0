"""Notebook: a notebook's parameters, widgets in a workspace and the environment elsewhere, become an open lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fraudlake import settings

if TYPE_CHECKING:
    from fraudlake.lake import Lake

_WIDGETS = {"catalog": "catalog", "schema": "schema_name"}


def open_lake(dbutils: Any = None) -> Lake:
    """Open the lake that a notebook is about; it must be there, for a notebook only reads.

    What it is, such as its columns, the lake has recorded: a notebook needs no settings file.

    Args:
        dbutils: what a Databricks notebook has under this name: it gets the widgets ``catalog`` and ``schema``. Without
            it, and where the widgets are empty, FRAUDLAKE_LAKE, fraudlake.toml or ``./lake`` names the lake.

    Raises:
        UsageError: the parameters name no lake, or settings contradict it.
        FraudlakeError: there is no such lake.
    """
    from fraudlake import lake

    given = {}
    if dbutils is not None:
        for widget, setting in _WIDGETS.items():
            dbutils.widgets.text(widget, "")
            given[setting] = dbutils.widgets.get(widget) or None
    return lake.open_lake(settings.load(**given), must_exist=True)
