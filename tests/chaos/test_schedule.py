from __future__ import annotations

from tests.chaos.landing import landing_files
from tests.chaos.schedule import Kill, schedule, shortest, without


def test_a_seed_gives_the_same_files_and_the_same_schedule_and_another_seed_gives_others() -> None:
    assert landing_files(3, 20) == landing_files(3, 20) != landing_files(4, 20)
    assert schedule(3, 25, 48) == schedule(3, 25, 48) != schedule(4, 25, 48)


def test_all_files_land_whatever_the_seed() -> None:
    for seed in range(50):
        kills = schedule(seed, 25, 48, kafka=bool(seed % 2))
        assert (len(kills), sum(kill.files for kill in kills)) == (25, 48)


def test_without_a_kill_the_same_files_land() -> None:
    kills = schedule(3, 10, 48)
    for at in range(len(kills)):
        assert sum(kill.files for kill in without(kills, at)) == 48
        assert [kill.step for kill in without(kills, at)] == [kill.step for i, kill in enumerate(kills) if i != at]


def test_a_schedule_that_fails_is_cut_down_to_the_kills_that_it_fails_by() -> None:
    kills = schedule(3, 20, 48)
    guilty = {(kills[4].step, kills[4].delay, kills[4].moment), (kills[11].step, kills[11].delay, kills[11].moment)}

    def fails(attempt: list[Kill]) -> bool:
        return guilty <= {(kill.step, kill.delay, kill.moment) for kill in attempt}

    left = shortest(kills, fails)
    assert {(kill.step, kill.delay, kill.moment) for kill in left} == guilty
    assert sum(kill.files for kill in left) == 48
