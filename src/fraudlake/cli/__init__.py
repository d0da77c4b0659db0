"""The command line: ``fraudlake COMMAND`` runs one step of the lake, or all of them in order."""

from fraudlake.cli import (
    definition,
    delivery,
    detection,
    example,
    ingestion,
    model,
    operations,
    realtime,
    recovery,
    rule_changes,
    rules,
    run,
    workspace,
)
from fraudlake.cli.app import cli
from fraudlake.cli.main import main

__all__ = [
    "cli",
    "definition",
    "delivery",
    "detection",
    "example",
    "ingestion",
    "main",
    "model",
    "operations",
    "realtime",
    "recovery",
    "rule_changes",
    "rules",
    "run",
    "workspace",
]
