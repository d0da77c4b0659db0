"""Published models: stores the champion in ``gold_models``, from which each micro-batch loads it.

MLflow's registry decides which version is the champion. A micro-batch may run without access to MLflow (in a workspace,
in the worker of foreachBatch), so the champion's bytes are published in a table, which any session can read.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from fraudlake import tables
from fraudlake.errors import FraudlakeError
from fraudlake.model import budget
from fraudlake.model.classifier import Classifier
from fraudlake.text.sql_text import literal

if TYPE_CHECKING:
    from collections.abc import Collection

    from fraudlake.lake import Lake
    from fraudlake.model.drift import Profile

_LAST = "ORDER BY published_at DESC LIMIT 1"


@dataclass(frozen=True)
class Model:
    """A version that can score: its classifier as bytes, and the distributions of its training data."""

    number: str
    stored: bytes
    profile: Profile

    @cached_property
    def classifier(self) -> Classifier:
        """The classifier.

        Raises:
            ValueError: the bytes are not a classifier.
        """
        return Classifier.from_bytes(self.stored)

    def lacks(self, computed: Collection[str]) -> list[str]:
        """Return the features that it needs but that are not computed."""
        return [name for name in self.classifier.features if name not in computed]

    def threshold(self, wanted: float | str) -> float:
        """Return the probability that the setting ``threshold`` means for this version."""
        return budget.threshold(wanted, self.profile["budgets"])


def row(model: Model, published_at: datetime) -> pa.Table:
    """Return the row of ``gold_models`` that publishes a model; ``published_at`` is in UTC."""
    values = (model.number, model.stored, json.dumps(model.profile), published_at)
    return pa.table(
        {
            field.name: pa.array([value], field.type)
            for field, value in zip(tables.GOLD_MODELS.schema, values, strict=True)
        }
    )


def is_champion(published: pa.Table, model: Model) -> bool:
    """Return whether this model, with the same bytes and profile, is the latest published one."""
    latest = published.sort_by([("published_at", "descending")]).slice(0, 1)
    expected = row(model, datetime.now(UTC))
    return bool(latest.drop_columns("published_at").to_pylist() == expected.drop_columns("published_at").to_pylist())


def champion_number(lake: Lake) -> str | None:
    """Return the number of the version that was published last; None: no version was published yet."""
    last = lake.store.query(f"SELECT model_version FROM {tables.GOLD_MODELS.name} {_LAST}", tables.GOLD_MODELS)[
        "model_version"
    ].to_pylist()
    return str(last[0]) if last else None


def latest(lake: Lake) -> tuple[Model, datetime] | None:
    """Return the latest published version, and when it was published (UTC); None if no row can be read."""
    for row in lake.store.query(
        f"SELECT model_version, model, profile, published_at FROM {tables.GOLD_MODELS.name} {_LAST}", tables.GOLD_MODELS
    ).to_pylist():
        with suppress(TypeError, ValueError):
            model = Model(row["model_version"], bytes(row["model"]), json.loads(row["profile"]))
            _ = model.classifier
            return model, row["published_at"]
    return None


def load(lake: Lake, number: str) -> Model:
    """Return a version in the form in which it was last published.

    Raises:
        FraudlakeError: the row is missing or cannot be read.
    """
    of_version = f"WHERE model_version = {literal(number)} {_LAST}"
    rows = lake.store.query(
        f"SELECT model, profile FROM {tables.GOLD_MODELS.name} {of_version}", tables.GOLD_MODELS
    ).to_pylist()
    try:
        model = Model(number, bytes(rows[0]["model"]), json.loads(rows[0]["profile"]))
        _ = model.classifier
    except (IndexError, TypeError, ValueError) as error:
        raise FraudlakeError(
            f"version {number} in gold_models cannot be read ({error}): "
            "start 'fraudlake score' again, which publishes it"
        ) from None
    return model


def retiring(lake: Lake, computed: Collection[str]) -> str | None:
    """Return a sentence if the champion needs features that will not be computed; None: they all will."""
    number = champion_number(lake) if lake.has(tables.GOLD_MODELS) else None
    lacking = [] if number is None else load(lake, number).lacks(computed)
    if not lacking:
        return None
    return (
        f"version {number}, the champion, needs {', '.join(lacking)} and cannot score without: "
        "run 'fraudlake train' before the next 'fraudlake score'"
    )


def profiles(lake: Lake, numbers: list[str]) -> dict[str, Profile]:
    """Return the profiles of the given versions, as far as they were published."""
    return {number: profile for number, profile in all_profiles(lake).items() if number in numbers}


def all_profiles(lake: Lake) -> dict[str, Profile]:
    """Return the profiles of all published versions."""
    rows = lake.store.query(
        f"SELECT DISTINCT model_version, profile FROM {tables.GOLD_MODELS.name}", tables.GOLD_MODELS
    ).to_pylist()
    return {row["model_version"]: json.loads(row["profile"]) for row in rows}


class Champion:
    """The current champion. Each micro-batch asks for it, so a new champion scores from the next micro-batch on.

    A micro-batch is one commit. When Spark repeats it after a crash, a committed micro-batch keeps its predictions, and
    an uncommitted one is scored as a whole by the current champion.
    """

    def __init__(self) -> None:
        """Begin without a loaded model."""
        self._model: Model | None = None

    def now(self, lake: Lake) -> Model:
        """Return the champion; it is loaded only if it has changed since the last call.

        Raises:
            FraudlakeError: nothing was published, or the champion cannot be read.
        """
        number = champion_number(lake)
        if number is None:
            raise FraudlakeError("gold_models holds no model: start 'fraudlake score' again, which publishes it")
        if self._model is None or self._model.number != number:
            self._model = load(lake, number)
        return self._model
