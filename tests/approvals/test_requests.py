"""Two keys in memory: nobody approves what is theirs, and nothing takes effect without a second person."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fraudlake.approvals import gate, log
from fraudlake.approvals.request import Request
from fraudlake.errors import FraudlakeError, UsageError
from tests.approvals.memory import Memory, World

NAMES = {"ann": ("ann", " Ann", "ANN "), "bob": ("bob", "Bob", "\uff22OB"), "eve": ("eve", "EVE", " eve ")}
"""Three people, each in the spellings that are theirs."""
SEQUENCES = 10_000


@pytest.fixture
def store() -> Any:
    return Memory()


@pytest.fixture
def world() -> World:
    return World()


def asked(store: Any, world: World, value: int = 1, person: str = "ann") -> int:
    with pytest.raises(gate.WaitingError):
        gate.require(store, world.wanted("x", value), person, "it is time")
    return max(log.read(store))


def approve(store: Any, world: World, number: int, person: str = "bob") -> Request:
    return gate.approve(store, number, person, "seen", world.effect, store)


def test_what_one_asks_for_takes_effect_when_another_agrees(store: Any, world: World) -> None:
    number = asked(store, world)
    assert world.values["x"] == 0 and log.find(store, number).status == "waiting"
    request = approve(store, world, number)
    assert world.values["x"] == 1 and request.status == "carried out"
    assert [(event.kind, event.person, event.reason) for event in log.read_events(store)] == [
        ("requested", "ann", "it is time"),
        ("approved", "bob", "seen"),
        ("carried out", "bob", None),
    ]
    assert request.changes == [("x", 0, 1)]


@pytest.mark.parametrize("name", NAMES["ann"])
def test_nobody_approves_or_rejects_their_own_in_whatever_spelling(store: Any, world: World, name: str) -> None:
    number = asked(store, world)
    with pytest.raises(UsageError, match="request 1 is by ann: another person must decide"):
        approve(store, world, number, name)
    with pytest.raises(UsageError, match="another person must decide"):
        log.decide(store, number, "rejected", name, "no")
    assert world.done == [] and len(log.read_events(store)) == 1


def test_what_has_changed_since_is_not_approved_and_the_change_is_named(store: Any, world: World) -> None:
    number = asked(store, world)
    world.values["x"] = 7
    with pytest.raises(UsageError, match="asked when x was 0, and now it is 7"):
        approve(store, world, number)
    assert log.find(store, number).status == "waiting"


def test_of_two_approvals_at_once_one_counts_and_the_effect_is_once(store: Any, world: World) -> None:
    number = asked(store, world)
    store.meanwhile = lambda: approve(store, world, number, "eve")
    with pytest.raises(UsageError, match="request 1 is carried out already, by eve"):
        approve(store, world, number, "bob")
    assert world.done == [number]
    assert [(event.kind, event.person) for event in log.read_events(store)][1:] == [
        ("approved", "eve"),
        ("carried out", "eve"),
    ]


def test_a_second_approval_says_that_there_is_one(store: Any, world: World) -> None:
    number = asked(store, world)
    log.decide(store, number, "approved", "bob", "seen")  # and then its process was killed
    with pytest.raises(UsageError, match="request 1 is approved already, by bob at"):
        approve(store, world, number, "eve")


@pytest.mark.parametrize("after_effect", [False, True])
def test_an_approval_that_was_killed_is_completed_once(store: Any, world: World, after_effect: bool) -> None:
    number = asked(store, world)
    request = log.decide(store, number, "approved", "bob", "seen")
    if after_effect:
        world.effect.carry_out(store, request)
    assert approve(store, world, number).status == "carried out"
    with pytest.raises(UsageError, match="is carried out already"):
        gate.carry_out(store, number, "ann", world.effect, store)
    assert world.done == [number]


def test_the_author_may_carry_out_what_another_has_approved(store: Any, world: World) -> None:
    number = asked(store, world)
    with pytest.raises(UsageError, match="request 1 is waiting: a second person must approve it first"):
        gate.carry_out(store, number, "ann", world.effect, store)
    log.decide(store, number, "approved", "bob", "seen")
    gate.carry_out(store, number, "ann", world.effect, store)
    assert world.done == [number]


def test_what_is_withdrawn_or_rejected_has_no_effect(store: Any, world: World) -> None:
    first = asked(store, world)
    with pytest.raises(UsageError, match="request 1 is by ann, who alone can withdraw it"):
        log.decide(store, first, "withdrawn", "bob", "no")
    log.decide(store, first, "withdrawn", "ann", "a mistake")
    second = asked(store, world)
    log.decide(store, second, "rejected", "bob", "no")
    for number, status in ((first, "withdrawn"), (second, "rejected")):
        with pytest.raises(UsageError, match=f"is {status} already"):
            approve(store, world, number)
    assert world.done == []


def test_the_same_request_is_written_once_while_it_waits(store: Any, world: World) -> None:
    assert asked(store, world) == asked(store, world, person="eve") == 1
    log.decide(store, 1, "rejected", "bob", "no")
    assert asked(store, world) == 3


@pytest.mark.parametrize(("person", "reason"), [("ann", None), ("ann", "  "), ("ann", "x" * 1_001), ("a" * 201, "x")])
def test_a_request_has_a_reason_and_no_endless_texts(store: Any, world: World, person: str, reason: str | None) -> None:
    with pytest.raises(UsageError, match=r"give a reason|characters"):
        gate.require(store, world.wanted("x", 1), person, reason)
    assert log.read_events(store) == []


def test_there_is_no_request_with_another_number(store: Any, world: World) -> None:
    with pytest.raises(UsageError, match="there is no request 4"):
        approve(store, world, 4)


class Oracle:
    """Two keys as plain as can be: a list of [author, value before, name, value, approver, is settled]."""

    def __init__(self) -> None:
        self.values = {"x": 0, "y": 0}
        self.asked: list[list[Any]] = []

    def ask(self, who: str, name: str, value: int) -> None:
        for one in self.asked:
            if one[1:4] == [self.values[name], name, value] and one[4:] == [None, False]:
                return
        self.asked.append([who, self.values[name], name, value, None, False])

    def settle(self, what: str, who: str, at: int) -> None:
        if not 0 <= at < len(self.asked):
            return
        one = self.asked[at]
        author, before, name, _, approver, is_settled = one
        if is_settled:
            return
        if what == "withdrawn":
            one[5] = who == author
        elif what == "rejected":
            one[5] = who != author and approver is None
        elif what == "approved":
            if approver == who or (approver is None and who != author and self.values[name] == before):
                one[4] = who
                self._effect(one)
        elif what == "only approved":
            if approver is None and who != author:
                one[4] = who
        elif what == "carried out" and approver is not None:
            self._effect(one)

    def _effect(self, one: list[Any]) -> None:
        _, before, name, value, _, _ = one
        if self.values[name] in (before, value):
            self.values[name] = value
            one[5] = True


def test_random_sequences_of_three_people_have_no_effect_without_a_second_key() -> None:
    draw = random.Random(1)
    effects = 0
    for _ in range(SEQUENCES):
        store: Any = Memory()
        world = World()
        oracle = Oracle()
        for _ in range(draw.randrange(3, 12)):
            step(draw, store, world, oracle)
            assert world.values == oracle.values
        events = log.read_events(store)
        requests = {event.number: event for event in events if event.kind == "requested"}
        approved = {event.request: event.person for event in events if event.kind == "approved"}
        assert all(person_of(requests[number].person) != person_of(name) for number, name in approved.items())
        assert {*world.done} <= {*approved} and len(world.done) == len({*world.done})
        assert log.verify(log.read_events(store), None, False).faults == []
        effects += len(world.done)
    assert effects > 2_000  # and not because nothing ever takes effect


def person_of(name: str) -> str:
    return next(person for person, names in NAMES.items() if name in names)


def step(draw: random.Random, store: Any, world: World, oracle: Oracle) -> None:
    """Do the same, with or without success, in the package and in the oracle."""
    what = draw.choice(["ask", "ask", "approved", "approved", "approved", "only approved", "rejected", "withdrawn",
                        "carried out", "from outside"])  # fmt: skip
    who = draw.choice([*NAMES])
    name = draw.choice(NAMES[who])
    at = draw.randrange(len(oracle.asked) + 1)
    numbers = sorted(log.read(store))
    number = numbers[at] if at < len(numbers) else 999
    try:
        if what == "ask":
            key, value = draw.choice("xy"), draw.randrange(1, 4)
            if value != world.values[key]:
                oracle.ask(who, key, value)
                gate.require(store, world.wanted(key, value), name, "why")
                raise AssertionError("it passed the gate")
            return
        if what == "from outside":
            key = draw.choice("xy")
            world.values[key] = oracle.values[key] = draw.randrange(4)
            return
        oracle.settle(what, who, at)
        if what == "approved":
            gate.approve(store, number, name, "seen", world.effect, store)
        elif what == "carried out":
            gate.carry_out(store, number, name, world.effect, store)
        else:
            kind: Any = what.removeprefix("only ")
            log.decide(store, number, kind, name, "so")
    except FraudlakeError:
        pass
