"""The command doctor: finds faults of this machine, the settings or the lake, and names the remedies."""

from __future__ import annotations

import sys
from dataclasses import asdict

import click
from rich.markup import escape

from fraudlake.errors import UsageError
from fraudlake_cli.app import App, cli, options
from fraudlake_cli.output.progress import output


@cli.command(example="fraudlake doctor --lake my-lake", task="First steps")
@options("source", "bootstrap_servers", "driver_memory")
@click.pass_obj
def doctor(app: App, /, **flags: str | None) -> None:
    """Check Java, Python, packages, memory, disk, jars, locale, the lake and Kafka, with the remedy for each fault.

    Takes about a second; starts no Spark, downloads nothing and writes nothing. Commands work without what is marked
    with an exclamation mark. Exit code 1 if something else is wrong. Needs: nothing.
    """
    from fraudlake.operations.doctor import examine

    if app.catalog is not None:
        raise UsageError("doctor is about this machine: for a workspace there is 'fraudlake workspace check'")
    findings = []
    for finding in examine(lambda: app.settings(**flags)):
        findings.append(finding)
        if not app.json:
            mark = "[green]✓[/]" if finding.ok else "[red]✗[/]" if finding.matters else "[yellow]![/]"
            remedy = f"\n  {escape(finding.remedy)}" if finding.remedy else ""
            output.print(f"{mark} {finding.what}: {escape(finding.seen)}{remedy}", soft_wrap=True)
    ok = all(finding.ok or not finding.matters for finding in findings)
    app.show({"ok": ok, "findings": [asdict(finding) for finding in findings]})
    if not ok:
        sys.exit(1)
