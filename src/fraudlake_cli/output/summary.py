"""Summaries of results, as text for a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from fraudlake import tables
from fraudlake.entity import ACCOUNT
from fraudlake.text.counts import age, counted

if TYPE_CHECKING:
    from rich.console import Console

    from fraudlake.detection.state import State
    from fraudlake.forget.plan import Plan
    from fraudlake.lake import Lake
    from fraudlake.model.intervals import Estimate
    from fraudlake.model.registry import Version
    from fraudlake.model.training import Comparison
    from fraudlake.operations.lineage import Arrival, Lineage
    from fraudlake.operations.rebuild import Rebuilt
    from fraudlake.operations.status import Status
    from fraudlake.quarantine.replay import Replayed
    from fraudlake.quarantine.show import Quarantine
    from fraudlake_cli.output.lake_figures import LakeFigures
    from fraudlake_desk.queue.missed import Missed

SHOWN_ALERTS = 5
_HEADLINES = ("area_under_pr", "precision_at_budget", "recall_at_budget")
"""The figures by which versions of the model are compared."""
_NOT_RAW = ("source", "position", "reasons", "quarantined_at")


def print_counts(console: Console, figures: LakeFigures) -> None:
    """Print the number of rows of each layer, whether they add up, and the estimated fraud that queues missed."""
    status, missed = figures
    layers = Table.grid(padding=(0, 2))
    layers.add_column(justify="left")
    layers.add_column(justify="right")
    layers.add_column(justify="left", style="dim")
    for name, count, details in (*_counts_of_rows(status), *_counts_of_alerts(status)):
        layers.add_row(name, f"{count:,}", details)
    layers.add_row("predictions", f"{status.model.predictions:,}", "scored by the model")
    if missed:
        layers.add_row("missed", approximately(missed.unflagged.accounts), missed_by_lists(missed))
    layers.add_row("lag", f"{status.source.unread_files:,}", "files not read yet")
    console.print(layers)
    console.print(f"[dim]definition: {_definition(status.definition)}[/]", soft_wrap=True)
    if status.streams.last_batches:
        ages = (f"{step} {age(time, datetime.now(UTC))} ago" for step, time in status.streams.last_batches.items())
        console.print(f"[dim]last micro-batch: {', '.join(ages)}[/]", soft_wrap=True)
    _print_problems(console, status)


def _counts_of_rows(status: Status) -> Iterator[tuple[str, int, str]]:
    source = status.source
    rows = status.rows
    yield "landed", source.landed, f"rows in {counted(source.landed_files, 'file')}"
    yield "bronze", rows.bronze, f"as landed; {counted(source.rejected_files, 'file')} rejected"
    warnings = "".join(f"; {count:,} warned of {name}" for name, count in rows.warnings.items())
    missing = {"rate": rows.without_rate, "currency": rows.without_currency}
    without = "".join(f"; {count:,} without a {name}" for name, count in missing.items() if count)
    yield "silver", rows.silver, f"valid transactions{warnings}{without}"
    broken = f"by broken rule: {_by_name(rows.reasons)}" if rows.reasons else "rows that broke a rule"
    yield "quarantine", rows.quarantine, broken
    if rows.removed:
        yield "removed", sum(rows.removed.values()), f"older than row_retention: {_by_name(rows.removed)}"


def _counts_of_alerts(status: Status) -> Iterator[tuple[str, int, str]]:
    alerts = status.alerts
    fast = status.source.fast_alerts
    lanes = status.alerts.lanes
    yield "alerts", alerts.alerts, "raised by the rules"
    if alerts.suppressed:
        yield "suppressed", sum(alerts.suppressed.values()), f"by entries of a list: {_by_name(alerts.suppressed)}"
    if fast:
        details = f"in {counted(fast['messages'], 'message')} of the fast lane; {fast['rejected']:,} are not alerts"
        yield "fast alerts", fast["alerts"], details
    if lanes:
        latency = "" if lanes["latency_p99"] is None else f"; p99 up to {lanes['latency_p99']:,.0f} ms"
        details = f"of both lanes on {counted(lanes['days'], 'day')}; {lanes['only_fast']:,} only of the fast one, "
        details += f"{lanes['only_exact']:,} only of the exact one, {lanes['unknown']:,} of them unknown{latency}"
        yield "lanes agree", lanes["both"], details
    for destination, outcomes in alerts.deliveries.items():
        others = _by_name({name: count for name, count in outcomes.items() if name != "delivered"})
        yield "delivered", outcomes.get("delivered", 0), f"to {destination}{others and f'; {others}'}"


def _by_name(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def _print_problems(console: Console, status: Status) -> None:
    """Print what is wrong with the rows and the model, or that the rows add up."""
    source = status.source
    rows = status.rows
    if source.kafka_missing_offsets:
        console.print(f"[yellow]![/] {source.kafka_missing_offsets:,} Kafka offsets gave no row (docs/how-to/kafka.md)")
    for problem in (*status.model.breaches, *status.gaps):
        console.print(f"[red]✗[/] {problem}", soft_wrap=True)
    if not status.gaps and not source.landed:
        console.print(f"[yellow]![/] nothing has landed yet in {escape(status.landing)}", soft_wrap=True)
    elif not status.gaps:
        late = " - late" * bool(rows.late)
        removed = ", with the removed rows" * bool(rows.removed)
        console.print(f"[green]✓[/] they add up: landed = bronze = silver + quarantine{late}{removed}")
    if rows.quarantine and not rows.silver and not rows.removed:
        console.print(f"[yellow]![/] {no_valid_row(rows.quarantine)}", soft_wrap=True)


def no_valid_row(quarantined: int) -> str:
    """Return a sentence for a lake whose rows are all in quarantine, as with other fields than it expects."""
    return (
        f"no row is valid, and the quarantine has {counted(quarantined, 'row')}: 'fraudlake quarantine' shows the "
        "reasons. A payment needs the fields dt, accountId and amount (docs/how-to/schema-evolution.md, 'Other names "
        "and units')"
    )


def missed_by_lists(missed: Missed) -> str:
    """Describe the estimated fraud that rules, scores and queues missed, with the naive recall."""
    naive = "unknown" if missed.naive_recall is None else f"{missed.naive_recall:.3f}"
    unflagged = f"that nothing flagged, amount {approximately(missed.unflagged.amount)}"
    unreviewed = f"{approximately(missed.unreviewed.accounts)} flagged and not reviewed"
    recall = f"recall {approximately(missed.recall, '.3f')}, reviewed {approximately(missed.reviewed, '.3f')}"
    drawn = f"{missed.drawn:,} of {missed.population:,} drawn, {missed.undecided:,} items undecided"
    days = f"from {missed.first} to {missed.last}"
    return f"accounts' days with fraud {unflagged}; {unreviewed}, {days}; {recall}, naively {naive}; {drawn}"


def approximately(estimate: Estimate, form: str = ",.0f") -> str:
    """Return an estimate with its interval, such as ``250 (12 to 1,186)``, or ``250 (at least 12)``."""
    value = "unknown" if estimate.value is None else f"{estimate.value:{form}}"
    if not estimate.is_bounded:
        return f"{value} (at least {estimate.low:{form}})"
    return f"{value} ({estimate.low:{form}} to {estimate.high:{form}})"


def _definition(definition: dict[str, Any]) -> str:
    ordering = definition["ordering"]
    bound = definition["max_out_of_orderness"]
    payload = ", ".join(f"{name} from {field['from']}" for name, field in definition["payload"].items())
    columns = ", ".join(definition["columns"]) or "none of its own"
    order = f"event_time within {bound}" if ordering == "event_time" else ordering
    currency = definition["currency"]
    entities = ", ".join(definition["entities"])
    features = ", ".join(one["name"] for one in definition["features"])
    declared = (
        f"base currency {currency['base']}" if currency else "",
        f"entities {entities}" if entities else "",
        f"features {features}" if features else "",
    )
    parts = (payload, f"columns {columns}", *declared, f"ordering {order}", f"{definition['buckets']} buckets")
    return "; ".join([*filter(None, parts), definition["clustering"]])


def print_quarantine(console: Console, quarantine: Quarantine) -> None:
    """Print rows by rule, with samples."""
    if not quarantine.rows:
        console.print("nothing is in quarantine")
        return
    message = f"{counted(quarantine.rows, 'row')} in quarantine, by broken rule"
    console.print(f"{message}; a row that broke several rules counts for each")
    for rule, count in quarantine.reasons.items():
        console.print(f"\n[bold]{rule}[/] {count:,}")
        for sample in quarantine.samples[rule]:
            raw = ", ".join(f"{name}={value}" for name, value in sample.items() if name not in _NOT_RAW)
            place = f"{sample['source']} row {sample['position']}"
            line = f"  {place}, {sample['quarantined_at']:%Y-%m-%d %H:%M:%S}: {raw or 'no value at all'}"
            console.print(line, markup=False, soft_wrap=True)


def forgotten(plan: Plan, what: str) -> str:
    """Describe the rows that were or would be removed, and what stays."""
    rows = [
        f"{account}: {', '.join(f'{name} {count:,}' for name, count in sorted(counts.items())) or 'nothing more'}"
        for account, counts in plan.rows.items()
    ]
    return "\n".join([f"{what}, in rows:", *rows, *(f"stays: {sentence}" for sentence in plan.stays)])


def replayed(done: Replayed) -> str:
    """Describe the result of a replay of the quarantine."""
    lines = [f"{counted(done.moved, 'row')} moved to silver_transactions; {done.stayed:,} are still not valid and stay"]
    if done.not_replayable:
        lines.append(
            f"{done.not_replayable:,} were left alone: late rows and repeated source positions are already in the lake"
        )
    if done.finished:
        lines.append(f"{done.finished} earlier replays that had been interrupted were finished first")
    return "\n".join(lines)


def rebuilt(done: Rebuilt) -> str:
    """Describe the changes of a replay of days."""
    lines = [f"{done.first} to {done.last}, recomputed from bronze under the current settings:"]
    for name, changes in done.changes.items():
        lines.append(f"  {name}: {changes.added:,} added, {changes.gone:,} removed, {changes.same:,} unchanged")
        for sign, samples in (("+", changes.samples_added), ("-", changes.samples_gone)):
            for row in samples:
                values = (f"{column}={value}" for column, value in row.items() if value is not None)
                lines.append(f"    {sign} {', '.join(values)}")
    if not done.is_applied:
        return "\n".join([*lines, "nothing was changed: add --apply to write the days"])
    versions = (f"  {name}: version {after}; before {before}" for name, (before, after) in done.versions.items())
    return "\n".join([*lines, "written" if done.versions else "nothing was written: no table differed", *versions])


def explained(lineage: Lineage) -> str:
    """Describe the sources of an alert."""
    limits = [f"{name} {value}" for name, value in lineage.rule.items() if name != "name"]
    lines = [
        lineage.alert["explanation"],
        f"rule        {lineage.rule['name']}: {', '.join(limits) or 'not in silver_rules'}",
        f"alert       {lineage.alert['alert_id']}{_commit_text(lineage.taken, tables.SILVER_ALERTS)}",
    ]
    for origin in lineage.transactions:
        if not origin.transaction:
            lines.append(f"{origin.variable:<12}no longer in silver_transactions")
            continue
        row = origin.transaction
        silver = _commit_text(origin.taken["silver"], tables.SILVER_TRANSACTIONS)
        text = f"{row['transaction_id']}, {row['timestamp']:%Y-%m-%d %H:%M:%S.%f}, {row['amount']:.2f}{silver}"
        lines.append(f"{origin.variable:<12}{text}")
        place = " ".join(f"{key} {value}" for key, value in origin.landed.items())
        bronze = _commit_text(origin.taken["bronze"], tables.BRONZE_TRANSACTIONS)
        lines.append(f"{'':<12}{place or 'bronze_transactions does not hold it any more'}{bronze}")
    return "\n".join(lines)


def _commit_text(commit: Arrival | None, table: tables.Table) -> str:
    if commit is None:
        return ""
    return f" ({table.name} version {commit.version}{'' if commit.is_first else ' or earlier'})"


def print_state(console: Console, state: State, tiles: dict[str, dict[str, int]]) -> None:
    """Print the detector's state, and the tiles of declared features."""
    rows = Table.grid(padding=(0, 2))
    rows.add_row("order", state.ordering)
    rows.add_row("open flags", f"{state.open_flags:,}")
    for span, count in state.flags_by_age.items():
        rows.add_row(f"  {span}", f"{count:,}")
    rows.add_row("waiting rows", f"{state.waiting_rows:,}")
    for rule, count in state.rows_by_rule.items():
        rows.add_row(f"rows for {rule}", f"{count:,}")
    for entity, counts in state.by_entity.items():
        parts = (f"{counts[name]:,} {name.replace('_', ' ')}" for name in counts if counts[name] or name == "rows")
        rows.add_row(f"by {entity}", ", ".join(parts))
    for entity, counts in tiles.items():
        parts = (f"{count:,} {name}" for name, count in counts.items())
        rows.add_row(f"features by {entity}", ", ".join(parts))
    rows.add_row("newest event time", f"{state.newest:%Y-%m-%d %H:%M:%S.%f} UTC" if state.newest else "none")
    rows.add_row("watermark", f"{state.watermark:%Y-%m-%d %H:%M:%S.%f} UTC" if state.watermark else "none")
    rows.add_row("on disk", f"{state.bytes_on_disk / 1e6:.1f} MB")
    console.print(rows)


def print_run(
    console: Console,
    lake: Lake,
    counts: LakeFigures,
    model: dict[str, Any] | None,
    seconds: float,
) -> None:
    """Print the result of a whole run."""
    console.rule("[bold]fraudlake")
    print_counts(console, counts)
    status = counts.status

    console.print(f"\n[bold]Alerts[/] ({status.alerts.alerts:,})")
    first = lake.read(tables.SILVER_ALERTS).orderBy("timestamp", "alert_id").limit(SHOWN_ALERTS)
    for row in first.collect():
        console.print(Text(f"  {row['explanation']}"), soft_wrap=True)
    if status.alerts.alerts > SHOWN_ALERTS:
        console.print(f"  [dim]and {status.alerts.alerts - SHOWN_ALERTS:,} more in silver_alerts[/]")
    if lake.settings.entities:
        _print_entities(console, lake, status)

    agreed = status.alerts.agreement
    same = agreed["only_flink"] == agreed["only_spark"] == 0
    console.print("\n[bold]Against Flink's own detector[/]")
    console.print(
        f"  {'[green]the same verdict on every transaction[/]' if same else '[yellow]verdicts differ[/]'}: "
        f"{agreed['both']:,} flagged by both, {agreed['only_flink']:,} only by Flink, "
        f"{agreed['only_spark']:,} only by Spark",
        soft_wrap=True,
    )

    if model:
        console.print(f"\n[bold]Model[/] version {model['version']}, tested on the latest part of the history")
        console.print(f"  {figures(model['metrics'])}", soft_wrap=True)
        if model["reason"]:
            console.print(Text(f"  {model['reason']}"), soft_wrap=True)
    after_training = status.model.quality.get("after_training")
    if after_training:
        of_days = f"{counted(after_training['days'], 'day')} after its training"
        on_days = f"version {status.model.quality['model_version']} on {of_days}"
        console.print(f"  {on_days}: {figures(after_training)}", soft_wrap=True)

    console.print(f"\n[bold]The lake[/] is {status.lake} ({seconds:.0f} s). Try next:", soft_wrap=True)
    for command, effect in (
        ("simulate --rows 100000", "land more transactions"),
        ("run", "process them"),
        ("status", "count the rows of each layer"),
    ):
        console.print(f"  fraudlake --lake {lake.settings.lake} {command:<24} [dim]{effect}[/]", soft_wrap=True)


def _print_entities(console: Console, lake: Lake, status: Status) -> None:
    """Print the alerts and features of entities other than the account."""
    columns = "rule, entity, count(*) AS alerts, count(DISTINCT entity_key) AS keys"
    by_rule = lake.store.query(
        f"SELECT {columns} FROM {tables.SILVER_ALERTS.name} WHERE entity <> '{ACCOUNT}' GROUP BY rule, entity",
        tables.SILVER_ALERTS,
    )
    for row in by_rule.sort_by("rule").to_pylist():
        console.print(f"\n[bold]Alerts by {row['entity']}[/] ({row['alerts']:,})")
        console.print(f"  {row['rule']}: {row['keys']:,} different keys")
    features = [feature for feature in lake.settings.features if feature.entity != ACCOUNT and status.model.predictions]
    if features:
        console.print("\n[bold]Features by entity[/]")
    for feature in features:
        name = feature.name
        columns = f"count({name}) AS known, avg({name}) AS mean, max({name}) AS most"
        (figures,) = lake.store.query(
            f"SELECT {columns} FROM {tables.GOLD_FRAUD_PREDICTIONS.name}", tables.GOLD_FRAUD_PREDICTIONS
        ).to_pylist()
        text = f"known for {counted(figures['known'], 'transaction')}"
        if figures["known"]:
            text += f", {figures['mean']:.2f} on average, {figures['most']:.2f} at most"
        console.print(Text(f"  {name} ({feature.meaning}): {text}"), soft_wrap=True)


def print_versions(console: Console, versions: list[Version]) -> None:
    """Print a model's versions, the newest first."""
    rows = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("version", "alias", "figures on test rows", "trained on"):
        rows.add_column(heading)
    for version in versions:
        learned = version.trained_on | {"features": f"{len(version.trained_on.get('features', ()))} declared"}
        trained_on = ", ".join(f"{name} {value}" for name, value in learned.items())
        rows.add_row(version.number, ", ".join(version.aliases), figures(version.metrics), trained_on)
    console.print(rows if versions else "no version yet: run 'fraudlake train'")
    for version in versions:
        if version.weakness:
            console.print(f"[yellow]![/] {version.weakness}", soft_wrap=True)


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Print two versions' figures side by side."""
    rows = Table(box=None, padding=(0, 2, 0, 0))
    for heading in (comparison.rows, f"{comparison.champion} (champion)", comparison.challenger):
        rows.add_column(heading)
    old, new = (comparison.figures[number] for number in (comparison.champion, comparison.challenger))
    for name in dict.fromkeys((*_HEADLINES, *old, *new)):
        rows.add_row(name, *(f"{of[name]:.5g}" if name in of else "" for of in (old, new)))
    for name in ("precision", "recall"):
        estimates = [comparison.weighted.get(of, {}).get(name) for of in (comparison.champion, comparison.challenger)]
        if any(estimates):
            rows.add_row(f"{name}, weighted", *(approximately(one, ".3f") if one else "" for one in estimates))
    console.print(rows)
    console.print(Text(comparison.reason), soft_wrap=True)


def figures(metrics: dict[str, float]) -> str:
    """Return the main figures of a version, in a line."""
    names = {
        "precision_at_budget": "precision at the budget",
        "recall_at_budget": "recall at the budget",
        "area_under_pr": "average precision",
        "card_precision": "card precision",
        "amount_saved": "amount saved",
    }
    shown = [f"{label} {metrics[name]:.3f}" for name, label in names.items() if name in metrics]
    return ", ".join(shown) or "no labelled transaction in it"
