"""Suggestion: proposes declared features from columns and entities, and keeps the groups that help on history."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from fraudlake import tables
from fraudlake.entity import ACCOUNT
from fraudlake.features import account_features, entity_features
from fraudlake.model import history, search, training
from fraudlake.model.metrics import area_under_pr
from fraudlake.settings.features import DeclaredFeature, expressions_of
from fraudlake.text import toml_file
from fraudlake.times import durations

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from fraudlake.lake import Lake
    from fraudlake.model.history import Rows
    from fraudlake.settings import Settings

_COUNTS = ("1 hour", "1 day", "7 days", "30 days")
_SUMS = ("1 day", "7 days", "30 days")
_LABELS = ("1 day", "3 days", "7 days", "14 days", "30 days")
_ROUND = "amount >= 10 AND FLOOR(amount / 10) * 10 = amount"
_NIGHT = "HOUR(dt) < 6"
_UNUSUAL = 0.99
"""The share of amounts that are usual. A fraud of an unusual amount says less of the merchant or the device."""
_MOST_TEXTS = 1_000
"""The number of values from which a text column is a key and no category."""
_MOST_ROWS = 1_000_000
_MOST_GENUINE = 30_000
_TIMED_ROWS = 100_000
_BLOCKS = 3
_LEAST_USE = 0.001
"""The share of a model's gain below which a group is left out without a trial of its own."""
_CANDIDATE = search.SEARCH["trees"][0]


@dataclass(frozen=True)
class Group:
    """Features that are tried together."""

    name: str
    features: tuple[DeclaredFeature, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The features' names."""
        return tuple(feature.name for feature in self.features)


@dataclass(frozen=True)
class MeasuredGroup:
    """A group that helps, what it gives and what it costs."""

    group: Group
    gain: float
    """The area under PR that is lost without it."""
    microseconds: float
    """The time that a row takes for it in one process."""
    key_bytes: float
    """The bytes of a key in the state."""


@dataclass(frozen=True)
class Suggestion:
    """The outcome: the kept groups, and the area under PR with and without them."""

    groups: tuple[MeasuredGroup, ...]
    tried: int
    before: float
    after: float
    measured: str
    """The rows that it was measured on."""

    @property
    def features(self) -> tuple[DeclaredFeature, ...]:
        """The features of the kept groups."""
        return tuple(feature for one in self.groups for feature in one.group.features)

    def text(self) -> str:
        """Return a table of the kept groups."""
        width = max((len(one.group.name) for one in self.groups), default=0)
        lines = []
        for one in self.groups:
            cost = f"{one.microseconds:5.1f} µs a row  {one.key_bytes:6,.0f} B a key"
            lines.append(f"{one.group.name:<{width}}  {one.gain:+.4f}  {cost}")
        total = f"area under PR {self.after:.4f}, {self.before:.4f} without, on {self.measured}"
        return "\n".join([*lines, f"{len(self.groups)} of {self.tried} groups help: {total}"])

    def toml(self) -> str:
        """Return a file of the features; comments say what each group gives and costs."""
        parts = [f"# {self.text().splitlines()[-1]}"]
        for one in self.groups:
            cost = f"{one.microseconds:.1f} µs a row in one process, {one.key_bytes:,.0f} bytes a key"
            parts.append(f"# {one.group.name}: {one.gain:+.4f} area under PR, {cost}")
            parts += [toml_file.entry("features", _fields(feature)) for feature in one.group.features]
        return "\n\n".join(parts) + "\n"

    def as_json(self) -> dict[str, Any]:
        """Return the outcome for ``--json``."""
        groups = [
            {
                "group": one.group.name,
                "features": list(one.group.names),
                "gain": one.gain,
                "microseconds": one.microseconds,
                "key_bytes": one.key_bytes,
            }
            for one in self.groups
        ]
        return {"groups": groups, "before": self.before, "after": self.after, "tried": self.tried}


def _fields(feature: DeclaredFeature) -> dict[str, Any]:
    """Return the fields of a declaration, with durations as a person would write them."""
    fields = feature.model_dump(mode="json")
    for name in ("window", "delay"):
        if fields.get(name, "ever") != "ever":
            fields[name] = durations.text(getattr(feature, name))
    return fields


def suggest(lake: Lake, progress: search.Progress = lambda *_: None) -> Suggestion:
    """Propose features for a lake, and keep those groups that its history shows to help.

    Models learn from the first third of the history and are measured on the second, and from both for the last. The
    part on which 'train' tests is not seen. Each feature is as it was known at the time of its transaction. Of a long
    history, the newest :data:`_MOST_ROWS` transactions are used.

    Raises:
        FraudlakeError: the lake has too few labels.
    """
    bare = lake.settings.model_copy(update={"features": ()})
    silver = history.read_newest(lake.store, _columns(bare), _MOST_ROWS)
    verdicts = training.known_verdicts(lake)
    largest = history.amount_above(silver, _UNUSUAL)
    groups = candidates(bare, _texts(silver, bare), largest)
    progress(0, len(groups) + 1, "features")
    settings = _with(bare, groups)
    try:
        labelled, _, cut = training.labelled_rows(history.select_history(silver, verdicts, settings), settings)
    except search.TooLittleError as error:
        raise error.stopping("suggest features") from None
    learned = labelled.between(None, cut.validated_until)
    trial = _Trial(learned)
    survivors = _eliminated(trial, groups, progress)
    used = _used(trial, survivors, settings)
    survivors = [Group(group.name, tuple(one for one in group.features if one.name in used)) for group in survivors]
    survivors = [group for group in survivors if group.features]
    before = trial.area([])
    after = trial.area(survivors)
    if is_chance(before, after, int(learned.fraud.sum())):
        survivors = []
        after = before
    newest = silver.slice(0, _TIMED_ROWS)
    measured = [
        MeasuredGroup(
            group, after - trial.area([one for one in survivors if one != group]), *_cost(bare, group, newest, verdicts)
        )
        for group in survivors
    ]
    first, last = (history.from_micros(int(at)) for at in (learned.time.min(), learned.time.max()))
    return Suggestion(
        tuple(sorted(measured, key=lambda one: -one.gain)),
        len(groups),
        before,
        after,
        f"{len(learned.time):,} rows ({int(learned.fraud.sum()):,} fraud) of {first:%Y-%m-%d} to {last:%Y-%m-%d}",
    )


def is_chance(before: float, after: float, frauds: int) -> bool:
    """Return whether an area under PR is within a standard error of the one before, as in :func:`search.simplest`."""
    return search.simplest([before, after], frauds) == 0


def _columns(settings: Settings) -> list[str]:
    """Return the columns of silver that candidates may read."""
    return list(dict.fromkeys([*history.columns_read(settings), *settings.silver_columns]))


def _texts(silver: pa.Table, settings: Settings) -> dict[str, int]:
    """Return the number of values of each declared text column."""
    names = [name for name, column in settings.silver_columns.items() if column.type == "string"]
    return {name: len(pc.unique(silver[name])) for name in names}


def candidates(settings: Settings, texts: Mapping[str, int], largest: float) -> list[Group]:
    """Propose groups of features.

    Args:
        settings: the columns and entities of a lake.
        texts: the number of values of each text column.
        largest: the amount from which amounts are unusual.
    """
    groups = [Group("the payment itself", tuple(_own_values(settings, texts)))]
    for entity in (ACCOUNT, *settings.entities):
        key = settings.entity_columns(entity)
        others = [name for name in ("account_id", *texts) if name not in key]
        for name, declared in _entity_groups(entity, others, settings, largest).items():
            groups.append(Group(f"{entity}: {name}", tuple(_declared(entity, one) for one in declared)))
    possible = _possible([one for group in groups for one in group.features], settings)
    groups = [Group(group.name, tuple(one for one in group.features if one.name in possible)) for group in groups]
    return [group for group in groups if group.features]


def _declared(entity: str, fields: dict[str, Any]) -> DeclaredFeature:
    """Declare a feature of an entity, whose name begins with the entity's."""
    of_entity = {} if "expression" in fields else {"entity": entity}
    return DeclaredFeature.model_validate(fields | of_entity | {"name": f"{entity}_{fields['name']}".lower()})


def _possible(declared: Sequence[DeclaredFeature], settings: Settings) -> set[str]:
    """Return the names of the features that see no further back than silver keeps rows, and that no column has."""
    retention = settings.row_retention.get(tables.SILVER_TRANSACTIONS.name, timedelta.max)
    columns = {name.lower() for name in settings.silver_columns}
    possible = {one.name for one in declared if (one.window or timedelta(0)) + one.delay <= retention} - columns
    refused = {one.name for one in declared} - possible
    return {one.name for one in declared if one.name in possible and not refused & _words(one)}


def _words(feature: DeclaredFeature) -> set[str]:
    """Return the names in an expression."""
    return set(re.findall(r"\w+", feature.expression or ""))


def _own_values(settings: Settings, texts: Mapping[str, int]) -> Iterator[DeclaredFeature]:
    keys = {name for entity in settings.entities for name in settings.entity_columns(entity)}
    for name, column in settings.silver_columns.items():
        is_category = column.type in ("double", "boolean") or texts.get(name, _MOST_TEXTS) < _MOST_TEXTS
        if is_category and name not in keys:
            yield DeclaredFeature(name=f"own_{name}".lower(), aggregate="value", column=name)
    yield DeclaredFeature(name="is_round", expression=_ROUND)
    yield DeclaredFeature(name="day_of_week", expression="DAYOFWEEK(dt)")


def _entity_groups(
    entity: str, others: Sequence[str], settings: Settings, largest: float
) -> dict[str, list[dict[str, Any]]]:
    """Return the declarations of an entity's groups, by what the groups are about; names lack the entity's."""
    amounts: list[dict[str, Any]] = []
    for window in _SUMS:
        short = window.replace(" ", "_")
        amounts.append({"name": f"sum_{short}", "aggregate": "sum", "column": "amount", "window": window})
        amounts.append({"name": f"mean_{short}", "aggregate": "mean", "column": "amount", "window": window})
    counts = [{"name": f"count_{w.replace(' ', '_')}", "aggregate": "count", "window": w} for w in _COUNTS]
    ratio: dict[str, Any] = {"aggregate": "ratio_to_mean", "column": "amount"}
    z_score: dict[str, Any] = {"aggregate": "z_score", "column": "amount", "logarithm": True}
    ever = {"window": "ever"}
    groups = {
        "how often": counts,
        "bursts": [
            {"name": "burst_hour", "expression": f"{entity}_count_1_hour / ({entity}_count_7_days + 1)"},
            {"name": "burst_day", "expression": f"{entity}_count_1_day / ({entity}_count_30_days + 1)"},
        ],
        "how much": [*amounts, {"name": "max_30_days", "aggregate": "max", "column": "amount", "window": "30 days"}],
        "unusual amounts": [
            {"name": "amount_to_mean_7_days", "window": "7 days"} | ratio,
            {"name": "amount_to_mean", **ever} | ratio,
            {"name": "amount_deviation_30_days", "window": "30 days"} | z_score,
            {"name": "amount_deviation", **ever} | z_score,
        ],
        "how long known": [
            {"name": "age", "aggregate": "seconds_since_first", **ever},
            {"name": "since_last", "aggregate": "seconds_since_last", **ever},
            {"name": "is_first", "aggregate": "is_first", **ever},
            {"name": "count", "aggregate": "count", **ever},
        ],
        "habits": [
            {"name": "round_share", "aggregate": "share", "where": _ROUND, "window": "30 days"},
            {"name": "night_share", "aggregate": "share", "where": _NIGHT, "window": "30 days"},
            {"name": "round_at_night", "aggregate": "count", "where": f"{_ROUND} AND {_NIGHT}", "window": "30 days"},
            {"name": "small_hour", "aggregate": "count", "where": "amount < 3", "window": "1 hour"},
        ],
        "labels": _labels(settings),
        "labels week by week": [
            {"name": f"fraud_share_{weeks}_weeks_ago", "aggregate": "fraud_share", "window": "7 days"}
            | {"delay": settings.flink_delay + timedelta(days=7 * weeks)}
            for weeks in (1, 2, 3)
        ],
        "labels of usual amounts": _labels(settings, {"where": f"amount < {largest:g}"}, "usual_"),
    }
    if others:
        groups["how many others"] = [
            {"name": f"distinct_{other}_{w.replace(' ', '_')}", "aggregate": "distinct", "column": other, "window": w}
            for other in others
            for w in ("1 day", "7 days")
        ]
        groups["changes"] = [
            {"name": f"changed_{other}", "aggregate": "changed", "column": other, **ever} for other in others
        ]
    return {name: declared for name, declared in groups.items() if declared}


def _with(settings: Settings, groups: Iterable[Group]) -> Settings:
    return settings.model_copy(update={"features": tuple(one for group in groups for one in group.features)})


def _labels(
    settings: Settings, fields: Mapping[str, str] = MappingProxyType({}), prefix: str = ""
) -> list[dict[str, Any]]:
    """Return the declarations of an entity's known frauds, some of which ``fields`` select."""
    labels: list[dict[str, Any]] = []
    # A window of labels ends where Flink's are known; verdicts and chargebacks have times of their own.
    delay = settings.flink_delay
    for window in _LABELS:
        short = f"{prefix}{window.replace(' ', '_')}"
        of_window = {"window": window, "delay": delay, **fields}
        labels.append({"name": f"fraud_share_{short}", "aggregate": "fraud_share", **of_window})
        labels.append({"name": f"frauds_{short}", "aggregate": "fraud_count", **of_window})
    since = {"window": timedelta(days=30) + delay, **fields}
    return [*labels, {"name": f"{prefix}seconds_since_fraud", "aggregate": "seconds_since_fraud", **since}]


class _Trial:
    """Fits models on some of the features, and measures them: on the second third of the rows, and on the last."""

    def __init__(self, labelled: Rows) -> None:
        """Take rows with a label; of many, all fraud and a sample of the others."""
        chosen = _sampled(labelled)
        cuts = np.quantile(chosen.time, np.linspace(0, 1, _BLOCKS + 1)[1:-1])
        block = np.searchsorted(cuts, chosen.time, side="right")
        self._pairs: list[tuple[Rows, Rows]] = []
        for number in range(1, _BLOCKS):
            fitted = chosen.chosen(block < number)
            encodings = search.encodings_of(fitted)
            pair = fitted, chosen.chosen(block == number)
            fitted, measured = (replace(rows, features=rows.matrix(rows.names, encodings)) for rows in pair)
            self._pairs.append((fitted, measured))
        self.gains: dict[str, float] = {}

    def area(self, groups: Iterable[Group]) -> float:
        """Return the mean of :meth:`areas`."""
        return float(np.mean(self.areas(groups)))

    def areas(self, groups: Iterable[Group]) -> NDArray[np.float64]:
        """Return the areas under PR with the lake's own features and those of the groups; set the gain of each."""
        names = [*account_features.NAMES, *(name for group in groups for name in group.names)]
        at = [self._pairs[0][0].names.index(name) for name in names]
        areas = []
        gains = np.zeros(len(names))
        for fitted, measured in self._pairs:
            learned = _CANDIDATE.fit(replace(fitted, features=fitted.features[:, at], names=tuple(names)))
            margins = learned.margins(measured.features[:, at])
            areas.append(area_under_pr(measured.fraud == 1, margins, measured.weights))
            gains += learned.importance / len(self._pairs)
        self.gains = dict(zip(names, gains.tolist(), strict=True))
        return np.array(areas)


def _sampled(rows: Rows) -> Rows:
    """Return all fraud, and at most :data:`_MOST_GENUINE` other rows, each for as many as there are."""
    genuine = np.flatnonzero(rows.fraud == 0)
    if len(genuine) <= _MOST_GENUINE:
        return rows
    is_chosen = rows.fraud == 1
    is_chosen[np.random.default_rng(0).choice(genuine, _MOST_GENUINE, replace=False)] = True
    weights = np.where(rows.fraud == 1, rows.weights, rows.weights * len(genuine) / _MOST_GENUINE)
    return replace(rows, weights=weights).chosen(is_chosen)


def _eliminated(trial: _Trial, groups: list[Group], progress: search.Progress) -> list[Group]:
    """Leave out the groups that models hardly use, and those without which no measurement gets worse."""
    trial.area(groups)
    use = {group.name: sum(trial.gains[name] for name in group.names) for group in groups}
    survivors = [group for group in groups if use[group.name] >= _LEAST_USE]
    survivors = [group for group in groups if group in survivors or any(_needs(one, group) for one in survivors)]
    best = trial.areas(survivors)
    for number, group in enumerate(sorted(survivors, key=lambda group: use[group.name])):
        progress(number + 1, len(survivors) + 1, f"without {group.name}")
        without = [one for one in survivors if one != group and not _needs(one, group)]
        areas = trial.areas(without)
        if np.all(areas >= best):
            survivors = without
            best = areas
    return survivors


def _needs(group: Group, other: Group) -> bool:
    """Return whether an expression of a group names a feature of the other group."""
    names = {one.name for one in other.features}
    return any(names & _words(one) for one in group.features)


def _used(trial: _Trial, groups: list[Group], settings: Settings) -> set[str]:
    """Return the names of the features that a model of the kept groups uses, and that their expressions name."""
    trial.area(groups)
    used = {name for name, gain in trial.gains.items() if gain > 0}
    for name, expression in reversed(expressions_of(settings.features, settings.silver_columns).items()):
        if name in used:
            used |= expression.columns
    return used


def _cost(settings: Settings, group: Group, silver: pa.Table, verdicts: pa.Table) -> tuple[float, float]:
    """Return the microseconds that a row takes, and the bytes of a key in the state, measured on some rows."""
    of_group = [one for one in group.features if one.expression is None]
    begun = time.perf_counter()
    _, states = entity_features.compute_states(silver, _with(settings, [Group("", tuple(of_group))]), verdicts)
    seconds = time.perf_counter() - begun
    tables_ = [tiles for state in states.values() for tiles in state.values()]
    keys = max((len(pc.unique(tiles["account"])) for tiles in tables_), default=0)
    return seconds / max(len(silver), 1) * 1e6, sum(tiles.nbytes for tiles in tables_) / max(keys, 1)
