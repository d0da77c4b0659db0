"""Commands for analysts: cases, queue build, list and next, review and decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.review.event import Event
from fraudlake.tables import SILVER_REVIEW_EVENTS
from fraudlake.text.counts import counted
from fraudlake.text.sql_text import value
from fraudlake_cli.app import App, cli, options, person_of
from fraudlake_cli.command import Day
from fraudlake_cli.output.terminal import one_line

if TYPE_CHECKING:
    from fraudlake.lake.store import Store
    from fraudlake.review.item import Item
    from fraudlake.review.item_state import State
    from fraudlake.review.items import Queued
    from fraudlake_desk.review.actions import SetAside
    from fraudlake_desk.review.several import Make, Outcomes

_SHOWN = 1_000
_analyst = click.option("--analyst", help="Who does it.  [default: the user of this machine]")
_day = click.option("--day", type=Day(), help="Day (UTC) of the queue.  [default: the last one that has a queue]")
_items = click.argument("items", nargs=-1, required=True, metavar="ITEM...")
_event = click.option("--event-id", help="Id of the event: repeating a command with the same id adds nothing.")


@cli.command(name="cases", example="fraudlake cases --day 2026-03-07")
@click.option("--day", type=Day(), help="Only cases with alerts on this day (UTC).")
@click.option("--limit", type=click.IntRange(1), default=20, help="Cases to show.  [default: 20]")
@options("warehouse")
@click.pass_obj
def cases_(app: App, /, day: datetime | None, limit: int, **flags: str | None) -> None:
    """List cases, the latest first: alerts of an account, or of an entity, that belong together.

    An alert belongs to the case of the one before it if at most case_gap is between them, and at most case_length since
    the first alert of the case, in event time. Needs: aggregate.
    """
    from fraudlake.review import cases

    rows = cases.listed(app.open_store(**flags), day.date() if day else None, limit).to_pylist()
    lines = [
        f"{row['case_id']}  {row['entity']} {row['entity_key']}  {counted(row['alerts'], 'alert')} of "
        f"{', '.join(row['rules'])}, {row['opened_at']:%Y-%m-%d %H:%M} to {row['last_alert_at']:%Y-%m-%d %H:%M}, "
        f"{row['amount_at_risk']:,.2f} at risk"
        for row in rows
    ]
    app.say({"cases": rows}, "\n".join(map(one_line, lines)) or "there are no cases")


@cli.group(example="fraudlake queue build")
def queue() -> None:
    """Build and show the review queue of a day."""


@queue.command(example="fraudlake queue build --day 2026-03-07 --size 100")
@click.option("--day", type=Day(), help="Day (UTC) of the transactions.  [default: the last one that is over]")
@click.option("--size", type=click.IntRange(1, 100_000), help="Items of the queue.  [default: queue_size]")
@click.option("--seed", type=int, help="Seed of the draw.  [default: 42]")
@click.option("--again", is_flag=True, help="Build a day's queue again, if nobody has begun to work on it.")
@options("explore", "warehouse")
@click.pass_obj
def build(
    app: App, /, day: datetime | None, size: int | None, seed: int | None, again: bool, **flags: str | None
) -> None:
    """gold_cases, gold_fraud_predictions, silver_verdicts → gold_review_queue.

    The day's cases that nobody has taken or decided, those with the most probable amount of fraud first; and, for the
    share explore of the queue, accounts that are drawn at random among all others of the day, which show what is
    missed. The same day and seed give the same queue, which is built once. Needs: aggregate.
    """
    from fraudlake_desk.queue import queue
    from fraudlake_desk.review import verdicts

    store = app.open_store(**flags)
    verdicts.follow(store)
    built = queue.build(store, day.date() if day else None, size, queue.SEED if seed is None else seed, again)
    drawn = sum(row["kind"] == "drawn" for row in built.rows)
    done = "" if built.is_new else " (it was built before; --again builds it anew)"
    app.say(
        {"day": built.day, "items": len(built.rows), "drawn": drawn, "is_new": built.is_new},
        f"the queue of {built.day} has {counted(len(built.rows), 'item')}, of which {drawn:,} drawn at random{done}",
    )


@queue.command(name="list", example="fraudlake queue list")
@_day
@options("warehouse")
@click.pass_obj
def list_(app: App, /, day: datetime | None, **flags: str | None) -> None:
    """List a day's queue, with who has taken or decided what, and what is late."""
    from fraudlake.review import items

    store = app.open_store(**flags)
    chosen = _day_of(store, day)
    rows = [{**queued.row, **_described(queued)} for queued in items.listed(store, chosen)]
    lines = [_line(row) for row in rows[:_SHOWN]]
    lines += [f"… and {len(rows) - _SHOWN:,} more, which --json lists"] if len(rows) > _SHOWN else []
    app.say({"day": chosen, "items": rows}, "\n".join(lines) or _no_queue(chosen))


@queue.command(name="next", example="fraudlake queue next --take")
@_day
@click.option("--take", is_flag=True, help="Take it, too.")
@_analyst
@options("review_lock", "warehouse")
@click.pass_obj
def next_(app: App, /, day: datetime | None, take: bool, analyst: str | None, **flags: str | None) -> None:
    """Show the first item of a day's queue that you have taken, or else that is free."""
    from fraudlake.review import items
    from fraudlake_desk.review.actions import TakenError

    store = app.open_store(**flags)
    name = person_of(store, analyst)
    chosen = _day_of(store, day)
    while (queued := items.next_of(store, chosen, name)) is not None:
        try:
            if take:
                _take(store, queued.item.item_id, name)
        except TakenError:  # another analyst was first
            continue
        app.say({"day": chosen, "item": queued.row}, _line(queued.row))
        return
    app.say({"day": chosen, "item": None}, f"nothing of the queue of {chosen} is left")


@cli.group(example="fraudlake review take ITEM")
def review() -> None:
    """Take, decide on, or set aside items: cases, by their ids or one of their alerts', and drawn accounts.

    Of several items, at most 100, each is allowed or refused on its own; the exit code is 1 if one is refused.
    """


@review.command(example="fraudlake review take 7d6c1f…")
@_items
@_analyst
@_event
@click.option("--again", is_flag=True, help="Take a decided item, to correct its verdict.")
@options("review_lock", "warehouse")
@click.pass_obj
def take(
    app: App,
    /,
    items: tuple[str, ...],
    analyst: str | None,
    event_id: str | None,
    again: bool,
    **flags: str | None,
) -> None:
    """Take ITEM: for review_lock, nobody else can take it or decide on it."""
    from fraudlake_desk.review import actions

    store = app.open_store(**flags)
    name = person_of(store, analyst)
    lock = store.settings.review_lock
    _carry_out(
        app,
        store,
        items,
        event_id,
        lambda item, before, new: actions.take(item, before, name, lock, new, again),
        lambda event: f"{event.analyst} has taken {event.item_id} until {event.expires_at:%Y-%m-%d %H:%M:%S} UTC",
    )


@review.command(example="fraudlake review release 7d6c1f…")
@_items
@_analyst
@_event
@click.option("--force", is_flag=True, help="Release what another analyst has taken.")
@options("warehouse")
@click.pass_obj
def release(
    app: App,
    /,
    items: tuple[str, ...],
    analyst: str | None,
    event_id: str | None,
    force: bool,
    **flags: str | None,
) -> None:
    """Give ITEM back without a verdict."""
    from fraudlake_desk.review import actions

    store = app.open_store(**flags)
    name = person_of(store, analyst)
    _carry_out(
        app,
        store,
        items,
        event_id,
        lambda item, before, new: actions.release(item, before, name, new, force),
        lambda event: f"{event.item_id} is free",
    )


@review.command(example="fraudlake review verdict 7d6c1f… fraud --note 'the card was stolen'")
@_items
@click.argument("decision", type=click.Choice(["fraud", "genuine", "unsure"]), metavar="fraud|genuine|unsure")
@click.option(
    "--payment", "payments", multiple=True, help="Id of a payment that is fraud, instead of those that raised a case."
)
@click.option("--all", "is_all", is_flag=True, help="All payments of the day of a drawn account are fraud.")
@click.option("--reason", help="Why, in a few words.")
@click.option("--note", help="Further text, of at most 20,000 characters.")
@click.option("--correct", is_flag=True, help="Replace the verdict that there is.")
@_analyst
@_event
@options("warehouse")
@click.pass_obj
def verdict(
    app: App,
    /,
    items: tuple[str, ...],
    decision: Any,
    payments: tuple[str, ...],
    is_all: bool,
    reason: str | None,
    note: str | None,
    correct: bool,
    analyst: str | None,
    event_id: str | None,
    **flags: str | None,
) -> None:
    """Decide on ITEM: which of its payments are fraud, in silver_verdicts; unsure is not a verdict there.

    Fraud are the payments that raised a case, or those of --payment; the others that ITEM is about are genuine. Of an
    account that was drawn, --payment or --all says which ones.
    """
    from fraudlake_desk.review import actions, marks

    store = app.open_store(**flags)
    name = person_of(store, analyst)
    if decision != "fraud" and (payments or is_all):
        raise UsageError(f"--payment and --all name what is fraud, and the verdict is {decision}")
    if payments and len(items) > 1:
        raise UsageError("--payment names payments of one item: decide on each of several on its own")

    @cache  # the event is made again if others write in the meantime
    def fraud(item: Item) -> dict[str, float]:
        chosen = payments or (item.transaction_ids if is_all or item.case_id else ())
        if not chosen:
            raise UsageError(
                f"{item.item_id} was drawn at random: say which payments are fraud with --payment ID, or --all"
            )
        return marks.amounts(store, item, chosen)

    def make(item: Item, before: State, new: str) -> Event:
        payments = fraud(item) if decision == "fraud" else None
        return actions.decide(item, before, name, decision, new, payments, reason, note, correct)

    def text(event: Event) -> str:
        counted_ = (
            f", {counted(len(event.fraud_ids), 'payment')} of {event.fraud_amount:,.2f}" if event.fraud_ids else ""
        )
        return f"{event.analyst}: {event.item_id} is {event.verdict}{counted_}"

    _carry_out(app, store, items, event_id, make, text)


@review.command(example="fraudlake review withdraw 7d6c1f… --reason 'it was another account'")
@_items
@click.option("--reason", help="Why, in a few words.")
@_analyst
@_event
@options("warehouse")
@click.pass_obj
def withdraw(
    app: App,
    /,
    items: tuple[str, ...],
    reason: str | None,
    analyst: str | None,
    event_id: str | None,
    **flags: str | None,
) -> None:
    """Withdraw the verdict on ITEM: it is open again, and its payments have no label in silver_verdicts."""
    from fraudlake_desk.review import actions

    store = app.open_store(**flags)
    name = person_of(store, analyst)
    _carry_out(
        app,
        store,
        items,
        event_id,
        lambda item, before, new: actions.withdraw(item, before, name, new, reason),
        lambda event: f"{event.analyst} has withdrawn the verdict on {event.item_id}",
    )


@review.command(example="fraudlake review note 7d6c1f… 'called, no answer'")
@_items
@click.argument("text")
@_analyst
@_event
@options("warehouse")
@click.pass_obj
def note(
    app: App,
    /,
    items: tuple[str, ...],
    text: str,
    analyst: str | None,
    event_id: str | None,
    **flags: str | None,
) -> None:
    """Save TEXT as a note on ITEM, without a verdict."""
    _set_aside(
        app,
        items,
        "noted",
        None,
        analyst,
        event_id,
        flags,
        lambda event: f"{event.analyst} has noted it on {event.item_id}",
        note=text,
    )


@review.command(example="fraudlake review attach 7d6c1f… letter.pdf --note 'the bank answered'")
@click.argument("item")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--note", help="Further text, of at most 20,000 characters.")
@_analyst
@_event
@options("warehouse")
@click.pass_obj
def attach(
    app: App,
    /,
    item: str,
    file: Path,
    note: str | None,
    analyst: str | None,
    event_id: str | None,
    **flags: str | None,
) -> None:
    """Attach FILE, of at most 10 MB, to ITEM, without a verdict: the lake stores its bytes under their SHA-256."""
    from fraudlake.review import event_log, items
    from fraudlake_desk.review import attachments

    try:
        attachments.require_size(file.stat().st_size)
        content = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    store = app.open_store(**flags)
    name = person_of(store, analyst)
    one = items.require(store, item)
    id_ = event_id or event_log.new_id()
    event = attachments.attach(store, one, name, id_, file.name, content, note)
    text = f"{event.analyst} has attached {event.file_name} ({event.file_size:,} bytes) to {event.item_id}"
    app.say(_as_row(event), text)


@review.command(example="fraudlake review wait 7d6c1f… --until 2026-03-12 --reason 'the bank is asked'")
@_items
@click.option("--until", type=Day(), required=True, help="Day (UTC) from which it is offered again.")
@click.option("--reason", required=True, help="Why, in a few words.")
@_analyst
@_event
@options("warehouse")
@click.pass_obj
def wait(
    app: App,
    /,
    items: tuple[str, ...],
    until: datetime,
    reason: str,
    analyst: str | None,
    event_id: str | None,
    **flags: str | None,
) -> None:
    """Leave ITEM alone until a day: it is offered to nobody before."""
    _set_aside(
        app,
        items,
        "waiting",
        reason,
        analyst,
        event_id,
        flags,
        lambda event: f"{event.item_id} waits until {until:%Y-%m-%d}",
        until=until.replace(tzinfo=UTC),
    )


@review.command(example="fraudlake review assign 7d6c1f… bert --reason 'he knows the merchant'")
@_items
@click.argument("person")
@click.option("--reason", required=True, help="Why, in a few words.")
@_analyst
@_event
@options("warehouse")
@click.pass_obj
def assign(
    app: App,
    /,
    items: tuple[str, ...],
    person: str,
    reason: str,
    analyst: str | None,
    event_id: str | None,
    **flags: str | None,
) -> None:
    """Have PERSON decide on ITEM: it is offered to nobody else."""
    _set_aside(
        app,
        items,
        "assigned",
        reason,
        analyst,
        event_id,
        flags,
        lambda event: f"{event.item_id} is for {event.assignee}",
        assignee=person,
    )


@review.command(example="fraudlake review escalate 7d6c1f… --reason 'above my limit'")
@_items
@click.option("--reason", required=True, help="Why, in a few words.")
@_analyst
@_event
@options("warehouse")
@click.pass_obj
def escalate(
    app: App,
    /,
    items: tuple[str, ...],
    reason: str,
    analyst: str | None,
    event_id: str | None,
    **flags: str | None,
) -> None:
    """Have a lead decide on ITEM: the desk offers it to nobody else."""
    _set_aside(
        app,
        items,
        "escalated",
        reason,
        analyst,
        event_id,
        flags,
        lambda event: f"{event.item_id} is for a lead",
    )


@review.command(name="open", example="fraudlake review open 4711 --payment 5f0c… --reason 'the customer called'")
@click.argument("account")
@click.option("--payment", "payments", multiple=True, required=True, help="Id of a payment that it is about.")
@click.option("--reason", required=True, help="Why, in a few words.")
@_analyst
@_event
@options("warehouse")
@click.pass_obj
def open_(
    app: App,
    /,
    account: str,
    payments: tuple[str, ...],
    reason: str,
    analyst: str | None,
    event_id: str | None,
    **flags: str | None,
) -> None:
    """Open a case of payments of ACCOUNT that no alert has brought together; it is in the latest queue."""
    from fraudlake.review import event_log
    from fraudlake_desk.review import matters

    store = app.open_store(**flags)
    name = person_of(store, analyst)
    event = matters.open_case(store, account, payments, name, reason, event_id or event_log.new_id())
    paid = counted(len(event.transaction_ids), "payment")
    app.say(_as_row(event), f"{event.analyst} has opened case {event.item_id} of {paid}, in the queue of {event.day}")


@review.command(example="fraudlake review merge 7d6c1f… 4be07a… --reason 'the same device'")
@click.argument("item")
@click.argument("into")
@click.option("--reason", required=True, help="Why, in a few words.")
@_analyst
@_event
@options("warehouse")
@click.pass_obj
def merge(
    app: App, /, item: str, into: str, reason: str, analyst: str | None, event_id: str | None, **flags: str | None
) -> None:
    """Make the case ITEM a part of the case INTO: a verdict on INTO is then about the payments of both."""
    from fraudlake.review import event_log
    from fraudlake_desk.review import matters

    store = app.open_store(**flags)
    name = person_of(store, analyst)
    event = matters.merge(store, item, into, name, reason, event_id or event_log.new_id())
    app.say(_as_row(event), f"{event.item_id} is part of {event.merged_into}")


@review.command(example="fraudlake review separate 7d6c1f… --reason 'it was another device'")
@click.argument("item")
@click.option("--reason", required=True, help="Why, in a few words.")
@_analyst
@_event
@options("warehouse")
@click.pass_obj
def separate(
    app: App, /, item: str, reason: str, analyst: str | None, event_id: str | None, **flags: str | None
) -> None:
    """Make ITEM, which is part of another case, a case of its own again."""
    from fraudlake.review import event_log
    from fraudlake_desk.review import matters

    store = app.open_store(**flags)
    name = person_of(store, analyst)
    event = matters.separate(store, item, name, reason, event_id or event_log.new_id())
    app.say(_as_row(event), f"{event.item_id} is not part of {event.merged_into} any more")


@cli.command(example="fraudlake decisions --from 2026-03-01")
@click.option("--from", "first", type=Day(), help="From this day (UTC) on.  [default: all]")
@click.option("--to", "last", type=Day(), help="To this day, included.")
@click.option("--analyst", help="Only those of an analyst.")
@click.option("--all", "is_all", is_flag=True, help="Include all other events, such as what was taken and noted.")
@options("warehouse")
@click.pass_obj
def decisions(
    app: App,
    /,
    first: datetime | None,
    last: datetime | None,
    analyst: str | None,
    is_all: bool,
    **flags: str | None,
) -> None:
    """List who decided what, and when: the events of the review in their order."""
    conditions = [
        *([] if is_all else ["kind IN ('verdict', 'corrected', 'withdrawn')"]),
        *([f"date >= {value(first.date())}"] if first else []),
        *([f"date <= {value(last.date())}"] if last else []),
        *([f"analyst = {value(analyst)}"] if analyst else []),
    ]
    where = " AND ".join(conditions)
    table = SILVER_REVIEW_EVENTS
    statement = " ".join(["SELECT * FROM", table.name, f"WHERE {where}" if where else "", "ORDER BY number"])
    rows = app.open_store(**flags).query(statement, table).to_pylist()
    lines = [
        f"{row['at']:%Y-%m-%d %H:%M:%S}  {row['analyst']}  {row['verdict'] or ''}{' ' if row['verdict'] else ''}"
        f"({row['kind']})  {row['entity']} {row['entity_key']}  {row['item_id']}"
        f"{' into ' + row['merged_into'] if row['kind'] == 'merged' and row['merged_into'] else ''}"
        f"{'  ' + row['reason'] if row['reason'] else ''}"
        for row in rows
    ]
    app.say({"decisions": rows}, "\n".join(map(one_line, lines)) or "nobody has decided anything yet")


def _take(store: Store, item: str, analyst: str) -> None:
    from fraudlake.review import event_log, items
    from fraudlake_desk.review import actions

    one = items.require(store, item)
    lock = store.settings.review_lock
    id_ = event_log.new_id()
    event_log.record(store, one, id_, lambda before: actions.take(one, before, analyst, lock, id_))


def _set_aside(
    app: App,
    names: Sequence[str],
    kind: SetAside,
    reason: str | None,
    analyst: str | None,
    event_id: str | None,
    flags: Mapping[str, str | None],
    text: Callable[[Event], str],
    **fields: Any,
) -> None:
    from fraudlake_desk.review import actions

    store = app.open_store(**flags)
    name = person_of(store, analyst)

    def make(item: Item, before: State, new: str) -> Event:
        return actions.set_aside(item, before, name, kind, new, reason, **fields)

    _carry_out(app, store, names, event_id, make, text)


def _carry_out(
    app: App, store: Store, names: Sequence[str], event_id: str | None, make: Make, text: Callable[[Event], str]
) -> None:
    """Write and print an event for each item; each of several items is allowed or refused on its own."""
    from fraudlake.review import event_log, items
    from fraudlake_desk.review import several, verdicts

    several.require_few(names)
    first_id = event_id or event_log.new_id()
    chosen: dict[str, Item] = {}
    outcomes: Outcomes = {}
    for name in names:
        try:
            chosen[name] = items.require(store, name)
        except UsageError as missing:
            outcomes[name] = missing
    if len(names) == 1 and chosen:  # the event keeps the given id
        (item,) = chosen.values()
        outcomes[names[0]] = verdicts.record_one(store, item, first_id, lambda before: make(item, before, first_id))
    elif chosen:
        outcomes |= several.carry_out(store, chosen, first_id, (), make)
    _say_outcomes(app, {name: outcomes[name] for name in names}, text)


def _say_outcomes(app: App, outcomes: Outcomes, text: Callable[[Event], str]) -> None:
    """Print the outcome of each item.

    Raises:
        FraudlakeError: at least one was refused.
    """

    refused = {name: one for name, one in outcomes.items() if isinstance(one, FraudlakeError)}
    rows = {name: _as_row(one) for name, one in outcomes.items() if isinstance(one, Event)}
    if len(outcomes) == 1:
        for error in refused.values():
            raise error
    lines = [str(one) if isinstance(one, FraudlakeError) else text(one) for one in outcomes.values()]
    listed = [
        {"item": name, "event": rows.get(name), "refused": str(refused[name]) if name in refused else None}
        for name in outcomes
    ]
    app.say({"items": listed} if len(outcomes) > 1 else next(iter(rows.values())), "\n".join(lines))
    if refused:
        raise FraudlakeError(f"{len(refused)} of {counted(len(outcomes), 'item')} not done: the lines above say why")


def _as_row(event: Event) -> dict[str, Any]:
    from fraudlake.review import event_log

    (row,) = event_log.rows([event]).to_pylist()
    return dict(row)


def _day_of(store: Store, time: datetime | None) -> date:
    from fraudlake.review import items
    from fraudlake_desk.queue import queue

    return time.date() if time else items.latest(items.days(store)) or queue.last(store)


def _no_queue(day: date) -> str:
    return f"there is no queue of {day}: run 'fraudlake queue build --day {day}'"


def _described(queued: Queued) -> dict[str, Any]:
    # A case that got alerts after its verdict is open again.
    decision = queued.state.decision if queued.is_decided else None
    return {
        "holder": queued.state.holder,
        "expires_at": queued.state.expires_at,
        "verdict": decision.verdict if decision else None,
        "decided_by": decision.analyst if decision else None,
        "part_of": queued.item.item_id if queued.is_part else None,
        "is_late": queued.is_late,
    }


def _line(item: dict[str, Any]) -> str:
    done: Iterable[str] = (
        [f"{item['decided_by']}: {item['verdict']}"]
        if item.get("verdict")
        else [f"{item['holder']} has it until {item['expires_at'].astimezone(UTC):%H:%M:%S} UTC"]
        if item.get("holder")
        else []
    )
    part = [f"part of {item['part_of']}"] if item.get("part_of") else []
    late = ["late"] if item.get("is_late") else []
    what = f"{item['rank']:>4}  {item['item_id']}  {item['entity']} {item['entity_key']}"
    return one_line("  ".join([what, f"{item['amount_at_risk']:,.2f} at risk", item["reasons"], *part, *done, *late]))
