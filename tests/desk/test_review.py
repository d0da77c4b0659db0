"""Review events: who holds an item follows from the log alone, and an event is in it once or not at all."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.lake import chain, conflict
from fraudlake.lake.local_store import LocalStore
from fraudlake.review import event_log, item_state
from fraudlake.review.event import Event, Verdict
from fraudlake.review.item import Item
from fraudlake.review.item_state import State
from fraudlake.settings import load
from fraudlake.tables import SILVER_REVIEW_EVENTS, SILVER_VERDICTS, Table
from fraudlake_cli import main as program
from fraudlake_desk.review import actions
from tests.desk import local

NOON = datetime(2026, 3, 7, 12, tzinfo=UTC)
LOCK = timedelta(minutes=30)
CASE = Item("a1", "a1", "account", "7", "7", ("t1", "t2"), frozenset({"a1", "a2"}))


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Starts processes that have loaded this module already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        forkserver.ensure_running()
    return context


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return local.open_store(tmp_path / "lake")


def take(store: LocalStore, analyst: str, at: datetime = NOON, item: Item = CASE) -> Event:
    event_id = event_log.new_id()
    return event_log.record(store, item, event_id, lambda state: actions.take(item, state, analyst, LOCK, event_id), at)


def decide(store: LocalStore, analyst: str, verdict: Verdict = "fraud", at: datetime = NOON, **given: object) -> Event:
    event_id = str(given.pop("event_id", event_log.new_id()))

    fraud = dict.fromkeys(CASE.transaction_ids, 50.0) if verdict == "fraud" else None

    def make(state: State) -> Event:
        return actions.decide(CASE, state, analyst, verdict, event_id, **{"fraud": fraud, **given})

    return event_log.record(store, CASE, event_id, make, at)


def now_held(store: LocalStore, now: datetime) -> State:
    return item_state.state(event_log.read_events_of_items(store, CASE.names), now)


def test_an_item_that_one_analyst_holds_is_refused_to_another_with_the_name_and_the_time(store: LocalStore) -> None:
    take(store, "ann")

    with pytest.raises(FraudlakeError, match="ann holds a1 until 2026-03-07 12:30:00 UTC"):
        take(store, "bob", NOON + timedelta(minutes=29))

    assert [event.analyst for event in event_log.read_events(store)] == ["ann"]


def test_a_lock_expires(store: LocalStore) -> None:
    take(store, "ann")

    take(store, "bob", NOON + LOCK)

    with pytest.raises(FraudlakeError, match="bob holds a1"):
        decide(store, "ann", at=NOON + LOCK)
    assert now_held(store, NOON + LOCK).holder == "bob"


def test_a_verdict_after_the_lock_has_expired_counts_if_nobody_else_took_the_item(store: LocalStore) -> None:
    take(store, "ann")

    decide(store, "ann", at=NOON + 2 * LOCK)

    assert now_held(store, NOON + 2 * LOCK).covers(CASE)


def test_a_clock_that_goes_back_neither_frees_an_item_nor_goes_before_earlier_events(store: LocalStore) -> None:
    take(store, "ann")
    early = NOON - timedelta(days=400)

    with pytest.raises(FraudlakeError, match="ann holds a1"):
        take(store, "bob", early)
    decide(store, "ann", at=early)

    first, second = event_log.read_events(store)
    assert second.at > first.at == NOON


def test_an_item_is_released_by_its_holder_or_by_force(store: LocalStore) -> None:
    take(store, "ann")

    def release(analyst: str, is_forced: bool) -> None:
        event_id = event_log.new_id()

        def make(state: State) -> Event:
            return actions.release(CASE, state, analyst, event_id, is_forced)

        event_log.record(store, CASE, event_id, make, NOON)

    with pytest.raises(FraudlakeError, match="ann holds a1"):
        release("bob", False)
    release("bob", True)
    with pytest.raises(FraudlakeError, match="nobody holds a1"):
        release("ann", False)
    assert take(store, "bob").analyst == "bob"


def test_a_verdict_is_replaced_only_by_a_correction_which_is_a_later_event(store: LocalStore) -> None:
    with pytest.raises(FraudlakeError, match="nothing to correct"):
        decide(store, "ann", is_correction=True)
    decide(store, "ann", "fraud")
    with pytest.raises(FraudlakeError, match="ann decided on a1 at 2026-03-07 12:00:00 UTC: fraud"):
        decide(store, "bob", "genuine")
    with pytest.raises(FraudlakeError, match="a correction replaces a verdict"):
        take(store, "bob")

    decide(store, "bob", "genuine", is_correction=True, reason="own card")

    events = event_log.read_events(store)
    assert [(event.kind, event.verdict) for event in events] == [("verdict", "fraud"), ("corrected", "genuine")]
    assert events[1].at > events[0].at
    decision = now_held(store, NOON).decision
    assert decision is not None
    assert decision.verdict == "genuine"


def test_a_decided_case_that_gets_another_alert_is_open_again(store: LocalStore) -> None:
    decide(store, "ann")
    larger = replace(CASE, transaction_ids=("t1", "t2", "t3"), names=CASE.names | {"a3"})

    take(store, "bob", item=larger)

    assert now_held(store, NOON).holder == "bob"


def test_two_held_cases_that_a_late_alert_joins_are_held_by_the_one_who_was_first(store: LocalStore) -> None:
    other = replace(CASE, item_id="b1", case_id="b1", names=frozenset({"b1"}))
    take(store, "ann")
    take(store, "bob", item=other)
    joined = replace(CASE, names=CASE.names | other.names)

    state = item_state.state(event_log.read_events_of_items(store, joined.names), NOON)
    by_name = item_state.states(event_log.read_events(store), NOON, {"b1": "a1"})

    assert state.holder == "ann"
    assert by_name == {"a1": state}


@pytest.mark.parametrize("name", ["note", "reason", "analyst"])
def test_a_text_of_a_megabyte_is_refused_and_nothing_is_written(store: LocalStore, name: str) -> None:
    texts = {"analyst": "ann", name: "x" * 2**20}

    with pytest.raises(UsageError, match=f"the {name} has 1,048,576 characters, and at most .* are allowed"):
        decide(store, **texts)

    assert event_log.read_events(store) == []


def test_nobody_decides_without_a_name(store: LocalStore) -> None:
    with pytest.raises(UsageError, match="no analyst is named"):
        decide(store, " ")


def test_a_repeated_event_is_written_once(store: LocalStore) -> None:
    first = decide(store, "ann", event_id="e1")

    again = decide(store, "ann", event_id="e1", at=NOON + LOCK)

    assert again == first
    assert event_log.read_events(store) == [first]


def test_ten_thousand_items_have_their_states() -> None:
    events = [
        Event(
            f"e{n}", f"i{n % 10_000}", "verdict", "ann", NOON + n * timedelta(seconds=1), "7", "account", "7", "fraud"
        )
        for n in range(20_000)
    ]

    states = item_state.states(events, NOON)

    assert len(states) == 10_000
    assert all(
        state.last is not None and state.last.event_id == f"e{10_000 + n}" for n, state in enumerate(states.values())
    )


def race(root: Path, analyst: str, items: list[str], start: Barrier, results: Queue[tuple[str, str]]) -> None:
    store = LocalStore(load(lake=root))
    start.wait()
    for name in items:
        item = replace(CASE, item_id=name, case_id=name, names=frozenset({name}))
        try:
            take(store, analyst, item=item)
            results.put((name, analyst))
        except FraudlakeError:
            pass


@pytest.mark.slow
def test_of_two_processes_that_take_an_item_at_once_one_holds_it(tmp_path: Path, processes: ForkServerContext) -> None:
    store = local.open_store(tmp_path / "lake")
    take(store, "someone", item=replace(CASE, item_id="x", names=frozenset({"x"})))
    items = [f"item {n}" for n in range(8)]
    results: Queue[tuple[str, str]] = processes.Queue()
    start = processes.Barrier(2)
    racers = [
        processes.Process(target=race, args=(store.root, analyst, items, start, results)) for analyst in ("ann", "bob")
    ]

    for racer in racers:
        racer.start()
    winners = dict(results.get(timeout=60) for _ in items)
    for racer in racers:
        racer.join()

    assert results.empty()
    assert set(winners) == set(items)
    states = item_state.states(event_log.read_events(store), NOON)
    assert {name: states[name].holder for name in items} == winners
    numbers = [event.number for event in event_log.read_events(store)]
    assert numbers == list(range(1, 10))


def command(root: Path, event_id: str, begun: Connection) -> None:
    """Decide on a case by the command line, the first time, or correct the verdict."""
    begun.send(event_id)
    correct = () if event_id == "first" else ("--correct",)
    decision = ("review", "verdict", "a pair", "fraud", *correct, "--analyst", "ann", "--event-id", event_id)
    sys.argv = ["fraudlake", "--lake", str(root), *decision]
    program.main()


def written(store: LocalStore) -> tuple[list[str], int]:
    """The ids of the events, and how many verdicts have followed."""
    verdicts = store.query(f"SELECT * FROM {SILVER_VERDICTS.name}", SILVER_VERDICTS)
    return [event.event_id for event in event_log.read_events(store)], verdicts.num_rows


@pytest.mark.slow
@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.long)])
def test_a_command_that_is_killed_while_it_decides_leaves_its_event_once_or_not_at_all(
    tmp_path: Path, processes: ForkServerContext, kills: int
) -> None:
    """It is killed at moments from its start to its end; then it is repeated, and its verdict is there once, too."""
    store = local.open_store(tmp_path / "lake")
    local.fill(store, [local.Payment("a", "1", 100.0, rules=("pair",))])

    def start(event_id: str) -> tuple[ForkServerProcess, float]:
        """Start the command; return the process and when it began."""
        ours, its = processes.Pipe()
        process = processes.Process(target=command, args=(store.root, event_id, its))
        process.start()
        assert ours.recv() == event_id
        return process, time.monotonic()

    whole, begun = start("first")
    whole.join()
    seconds = time.monotonic() - begun
    ids, were_killed = ["first"], 0
    for kill in range(kills):
        event_id = f"kill {kill}"
        process, _ = start(event_id)
        process.join(seconds * (kill + 0.5) / kills)
        were_killed += process.is_alive()
        process.kill()
        process.join()
        assert written(store)[0] in (ids, [*ids, event_id])

        again, _ = start(event_id)
        again.join()
        ids.append(event_id)
        assert (again.exitcode, *written(store)) == (0, ids, len(ids))

    assert were_killed


@pytest.mark.slow
def test_each_event_is_written_once_while_others_compact_the_table_and_forget_an_account(store: LocalStore) -> None:
    """Another thread does to the table what ``optimize`` and ``forget`` do, all the time."""
    items = [replace(CASE, item_id=f"a{n}", account_id=str(n % 4), names=frozenset({f"a{n}"})) for n in range(12)]
    take(store, "cat", item=replace(items[3], item_id="b3", names=frozenset({"b3"})))
    folder, is_done, changes = store.root / "tables" / SILVER_REVIEW_EVENTS.name, threading.Event(), []

    def take_all(analyst: str, some: list[Item]) -> list[Event]:
        return [take(store, analyst, item=item) for item in some]

    def change() -> None:
        while not is_done.wait(0.02):  # without a pause, writers get no turn on a busy machine
            changes.append(conflict.retried(lambda: DeltaTable(folder).optimize.compact())["numFilesRemoved"])
            conflict.retried(lambda: DeltaTable(folder).delete("account_id = '3'"))

    with ThreadPoolExecutor(3) as threads:
        changing = threads.submit(change)
        taking = [threads.submit(take_all, "ann", items[::2]), threads.submit(take_all, "bob", items[1::2])]
        try:
            taken = [event for one in taking for event in one.result()]
        finally:
            is_done.set()
        changing.result()
    DeltaTable(folder).delete("account_id = '3'")

    assert Counter(event.event_id for event in event_log.read_events(store)) == Counter(
        event.event_id for event in taken if event.account_id != "3"
    )
    assert len({event.number for event in event_log.read_events(store)}) == 9
    assert sum(changes) > 0


def test_a_text_of_quotes_markup_and_other_alphabets_comes_back_as_it_was_given(store: LocalStore) -> None:
    note = "'; DROP TABLE x; -- \\ ${spark} <script>alert(1)</script> \N{CYRILLIC SMALL LETTER ZHE} \N{BEETLE}"

    decide(store, "o'hara \\", note=note, reason='"quoted"')

    (event,) = event_log.read_events(store)
    assert (event.analyst, event.note, event.reason) == ("o'hara \\", note, '"quoted"')
    assert store.query("SELECT * FROM silver_review_events", SILVER_REVIEW_EVENTS).num_rows == 1


@pytest.mark.slow
def test_the_desk_needs_no_pyspark(store: LocalStore) -> None:
    program = (
        "import sys; from pathlib import Path; from fraudlake.settings import load; "
        "from fraudlake.lake.local_store import LocalStore; from fraudlake.review import event_log; "
        f"print(event_log.read_events(LocalStore(load(lake=Path({str(store.root)!r})))), 'pyspark' in sys.modules)"
    )

    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert answer.stdout.split() == ["[]", "False"]


def aside(before: list[Event], kind: actions.SetAside, analyst: str = "ann", **given: object) -> Event:
    """The event that sets the case aside after some others."""
    return actions.set_aside(
        CASE, item_state.state(before, NOON), analyst, kind, str(len(before)), **{"reason": "r", **given}
    )


def offered(events: list[Event], now: datetime = NOON) -> list[str]:
    """Which of two analysts and a lead get the case as their next item."""
    state = item_state.state(events, now)
    people = (("ann", False), ("bob", False), ("lea", True))
    return [name for name, is_lead in people if state.is_offered(name, is_lead)]


def test_an_item_waits_or_is_for_one_person_or_for_a_lead() -> None:
    until = NOON + timedelta(days=2)
    waiting = aside([], "waiting", until=until)
    assigned = aside([waiting], "assigned", assignee=" bob ")
    escalated = aside([waiting, assigned], "escalated")

    assert offered([]) == ["ann", "bob", "lea"]
    assert offered([waiting]) == [] and offered([waiting], until) == ["ann", "bob", "lea"]
    assert offered([waiting, assigned], until) == ["bob"]
    assert offered([waiting, assigned, escalated], until) == ["lea"]
    # Who takes it by its name works on it, whatever was said before, and a verdict ends all of it.
    state = item_state.state([waiting], NOON)
    taken = actions.take(CASE, state, "ann", LOCK, "t")
    assert offered([waiting, taken]) == ["ann"]
    decided = actions.decide(CASE, item_state.state([escalated], NOON), "lea", "genuine", "v")
    state = item_state.state([escalated, decided], NOON)
    assert (state.is_escalated, state.assignee, state.waits_until) == (False, None, None)


def test_a_note_leaves_everything_as_it_is() -> None:
    taken = actions.take(CASE, item_state.state([], NOON), "ann", LOCK, "t")
    noted = aside([taken], "noted", "bob", reason=None, note="called")
    assert item_state.state([taken, noted], NOON).holder == "ann"
    decided = actions.decide(CASE, item_state.state([taken], NOON), "ann", "genuine", "v")
    noted = aside([taken, decided], "noted", "bob")
    assert item_state.state([taken, decided, noted], NOON).covers(CASE)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        ("noted", {"reason": None}, "no note on a1"),
        ("noted", {"reason": None, "note": " \n"}, "no note on a1"),
        ("waiting", {"reason": ""}, "give a reason why a1"),
        ("escalated", {"reason": " "}, "give a reason why a1"),
        ("waiting", {}, "a day of the next twelve months"),
        ("waiting", {"until": NOON + timedelta(days=400)}, "a day of the next twelve months"),
        ("waiting", {"until": NOON}, "a day of the next twelve months"),
        ("assigned", {"assignee": " "}, "name the person"),
    ],
)
def test_what_must_be_given_is_asked_for(kind: actions.SetAside, given: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        aside([], kind, **given)


def test_a_colleagues_verdict_is_overturned_with_a_reason_only() -> None:
    decided = actions.decide(CASE, item_state.state([], NOON), "ann", "genuine", "v")
    before = item_state.state([decided], NOON)
    for reason in (None, " "):
        with pytest.raises(UsageError, match="ann decided genuine on a1: give a reason"):
            actions.decide(CASE, before, "bob", "fraud", "w", {"t1": 5.0}, reason, is_correction=True)
    assert actions.decide(CASE, before, "bob", "genuine", "w", is_correction=True).kind == "corrected"
    assert actions.decide(CASE, before, "ann", "unsure", "w", is_correction=True).verdict == "unsure"
    overturned = actions.decide(
        CASE, before, "bob", "fraud", "w", {"t1": 5.0}, "the card was cloned", is_correction=True
    )
    assert overturned.labels == {"t1": True, "t2": False}


def test_with_ten_writers_at_once_every_event_is_written_once_and_in_the_chain(store: LocalStore) -> None:
    items = [replace(CASE, item_id=f"c{number}", names=frozenset({f"c{number}"})) for number in range(40)]

    def write(number: int) -> Event:
        return take(LocalStore(store.settings), f"analyst {number % 10}", item=items[number])

    with ThreadPoolExecutor(10) as pool:
        written = [*pool.map(write, range(40))]
    events = event_log.read_events(store)
    assert sorted(event.event_id for event in events) == sorted(event.event_id for event in written)
    assert chain.verify(events).faults == []


def others(count: int) -> list[Item]:
    return [replace(CASE, item_id=f"c{number}", names=frozenset({f"c{number}"})) for number in range(count)]


def taking(analyst: str, items: list[Item]) -> list[event_log.Wanted]:
    return [
        event_log.Wanted(
            item,
            f"{analyst} {item.item_id}",
            partial(actions.take, item, analyst=analyst, lock=LOCK, event_id=f"{analyst} {item.item_id}"),
        )
        for item in items
    ]


def commits(store: LocalStore) -> int:
    return DeltaTable(store.root / "tables" / SILVER_REVIEW_EVENTS.name).version()


def test_several_events_are_one_commit_each_is_allowed_on_its_own_and_a_repetition_adds_nothing(
    store: LocalStore,
) -> None:
    items = others(5)
    take(store, "bob", item=items[3])
    before = commits(store)

    first = event_log.record_all(store, taking("ann", items), NOON)
    again = event_log.record_all(store, taking("ann", items), NOON)

    events = event_log.read_events(store)
    assert [event.item_id for event in events] == ["c3", "c0", "c1", "c2", "c4"]
    assert chain.verify(events).faults == [] and commits(store) == before + 1
    assert [str(outcome) for outcome in first if isinstance(outcome, FraudlakeError)] == [
        "bob holds c3 until 2026-03-07 12:30:00 UTC: if a clock was ahead, free it with 'fraudlake review release c3 "
        "--force'"
    ]
    assert [getattr(one, "number", None) for one in again] == [2, 3, 4, None, 5]


def test_if_another_analyst_takes_one_of_several_meanwhile_it_is_refused_and_the_others_are_numbered_anew(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = others(3)
    insert_all = LocalStore.insert_all

    def after_bob(self: LocalStore, table: Table, rows: pa.Table, key: str) -> None:
        monkeypatch.setattr(LocalStore, "insert_all", insert_all)
        take(LocalStore(self.settings), "bob", item=items[1])
        insert_all(self, table, rows, key)

    monkeypatch.setattr(LocalStore, "insert_all", after_bob)
    outcomes = event_log.record_all(store, taking("ann", items), NOON)

    events = event_log.read_events(store)
    assert [(event.analyst, event.item_id) for event in events] == [("bob", "c1"), ("ann", "c0"), ("ann", "c2")]
    assert chain.verify(events).faults == []
    assert "bob holds c1" in str(outcomes[1])
