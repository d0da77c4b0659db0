"""Features: declares the model inputs of a lake in addition to the built-in features."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_settings import NoDecode

from fraudlake import tables
from fraudlake.entity import ACCOUNT
from fraudlake.errors import UsageError, reason_of
from fraudlake.feature import EVER, OWN, PLACEHOLDER, Feature
from fraudlake.text import toml_file
from fraudlake.times import durations
from fraudlake.values import from_json

_MOST_TILES = 20_000
_FRAUD = ("fraud_count", "fraud_share", "seconds_since_fraud")
_OF_NUMBER = ("sum", "mean", "min", "max", "ratio_to_mean", "stddev", "z_score", "quantile", "last")
_OF_COLUMN = (*_OF_NUMBER, "distinct", "changed", "value")
_OF_DEVIATION = ("stddev", "z_score")
_OF_OWN_VALUE = ("ratio_to_mean", "z_score", "changed")


class DeclaredFeature(Feature):
    """A feature that a lake declares."""

    aggregate: (
        Literal[
            "count",
            "sum",
            "mean",
            "min",
            "max",
            "stddev",
            "quantile",
            "distinct",
            "share",
            "last",
            "seconds_since_last",
            "seconds_since_first",
            "is_first",
            "ratio_to_mean",
            "z_score",
            "changed",
            "value",
            "fraud_count",
            "fraud_share",
            "seconds_since_fraud",
        ]
        | None
    ) = None

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name):
            raise ValueError(
                f"'{self.name}' must be of lower-case letters, digits and underscores, and begin with a letter"
            )
        if self.text is not None and len(re.findall(PLACEHOLDER, self.text)) != 1:
            raise ValueError(f"'{self.name}': text must have one {{}}, for the value, or {{:.1f}} for a decimal")
        if (self.aggregate is None) == (self.expression is None):
            raise ValueError(f"'{self.name}' must have an aggregate or an expression")
        if self.aggregate in (None, "value"):
            self._require_no_window()
        else:
            self._require_window()
        return self

    def _require_no_window(self) -> None:
        what = "an expression" if self.aggregate is None else "a value"
        names = [name for name in ("window", "delay", "where", "logarithm", "quantile") if getattr(self, name)]
        names += ["entity"] if self.entity != ACCOUNT else []
        if self.aggregate is None and self.column is not None:
            names.append("column")
        if names:
            raise ValueError(f"'{self.name}': {what} takes no {', '.join(names)}")
        if self.aggregate == "value" and self.column is None:
            raise ValueError(f"'{self.name}' lacks the column that it is the value of")

    def _require_window(self) -> None:
        aggregate = str(self.aggregate)
        needs_column = aggregate in _OF_COLUMN
        if needs_column and self.column is None:
            raise ValueError(f"'{self.name}' lacks the column that it is the {aggregate} of")
        if self.column is not None and not needs_column and aggregate != "count":
            raise ValueError(f"'{self.name}': {aggregate} takes no column")
        if self.window is None:
            raise ValueError(f"'{self.name}' lacks the window of its transactions, such as '7 days' or 'ever'")
        if aggregate in _OF_OWN_VALUE and self.delay:
            raise ValueError(f"'{self.name}': a {aggregate} has no delay")
        if self.logarithm and aggregate not in _OF_DEVIATION:
            raise ValueError(f"'{self.name}': logarithm is for {' and '.join(_OF_DEVIATION)}")
        if (self.quantile is not None) != (aggregate == "quantile"):
            raise ValueError(f"'{self.name}': a quantile, and nothing else, has quantile, such as 0.9")
        if aggregate == "share" and self.where is None:
            raise ValueError(f"'{self.name}' lacks the condition (where) whose share it is")
        if self.window == EVER and (self.delay or self.is_of_labels):
            raise ValueError(
                f"'{self.name}': a window of 'ever' has no delay and sees no labels: take one such as '3650 days'"
            )
        if self.tiles > _MOST_TILES:
            raise ValueError(
                f"'{self.name}' needs {self.tiles:,} tiles of {durations.text(timedelta(seconds=self.size))} for each "
                f"{self.entity}, and at most {_MOST_TILES:,} are allowed: shorten the delay, or lengthen the window"
            )

    @property
    def is_of_labels(self) -> bool:
        """Whether it depends on labels."""
        return self.aggregate in _FRAUD


def _entries(value: object) -> object:
    value = from_json(value)
    if not isinstance(value, list | tuple):
        raise ValueError("must be a list of features, as [[features]] makes them")
    return value


def _names_are_distinct(features: tuple[DeclaredFeature, ...]) -> tuple[DeclaredFeature, ...]:
    own = {name.lower() for name in (*tables.RESERVED_NAMES, *tables.GOLD_FRAUD_PREDICTIONS.column_names)}
    names = [feature.name for feature in features]
    for name in names:
        if name in own:
            raise ValueError(f"'{name}' is a column of the lake's own: give the feature another name")
        if names.count(name) > 1:
            raise ValueError(f"'{name}' is declared twice: rename one")
    return features


DeclaredFeatures = Annotated[
    tuple[DeclaredFeature, ...], NoDecode, BeforeValidator(_entries), AfterValidator(_names_are_distinct)
]


class Features(BaseModel):
    """What a model may see."""

    features: DeclaredFeatures = Field(
        (), description='Features in addition to the lake\'s own, as JSON: [{"name": …, "aggregate": …}, …].'
    )


def read(file: Path) -> tuple[DeclaredFeature, ...]:
    """Read the ``[[features]]`` of a TOML file.

    Raises:
        UsageError: the file cannot be read, or a feature is not valid.
    """
    entries = toml_file.entries(file, "features")
    try:
        features: tuple[DeclaredFeature, ...] = TypeAdapter(DeclaredFeatures).validate_python(entries)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(["features", *map(str, first["loc"])])
        raise UsageError(f"{file}: {where}: {reason_of(first)}") from None
    return features


def typed(features: Collection[DeclaredFeature], columns: Mapping[str, Any]) -> list[tuple[DeclaredFeature, str]]:
    """Return features with the SQL types of their columns, for the setting ``columns``."""
    return [(feature, column_type(feature, columns)) for feature in features]


def require_declared(
    features: Collection[DeclaredFeature],
    columns: Mapping[str, Any],
    entities: Mapping[str, Any],
    label_delay: timedelta,
) -> None:
    """Check features against what a lake declares.

    Args:
        features: the features.
        columns: the setting ``columns``.
        entities: the setting ``entities``.
        label_delay: the setting ``label_delay``.

    Raises:
        UsageError: an entity or a column is not declared, or the column has another type; a condition is not valid; or
            no label is known within the window.
    """
    from fraudlake.rules.columns import query_columns

    choices = query_columns(columns)
    for feature in features:
        where = f"features: {feature.name}"
        if feature.name in (name.lower() for name in columns):
            raise UsageError(f"{where} is a declared column, too: give the feature another name")
        if feature.entity != ACCOUNT and feature.entity not in entities:
            declared = ", ".join((ACCOUNT, *entities))
            raise UsageError(
                f"{where}: there is no entity '{feature.entity}', only {declared}: declare it in [entities]"
            )
        if feature.column is not None:
            column = choices.get(feature.column)
            if column is None:
                raise UsageError(
                    f"{where}: there is no column '{feature.column}'; there are {', '.join(choices)}: declare it in "
                    "[columns]"
                )
            if feature.aggregate in _OF_NUMBER and not column.type.is_numeric:
                raise UsageError(f"{where}: {feature.aggregate} takes a number, and {feature.column} is {column.type}")
            is_own = column.name in ("label", "transaction_id", "account_id")
            if feature.aggregate == "value" and (is_own or column.type.name == "TIMESTAMP"):
                raise UsageError(f"{where}: {feature.column} cannot be a feature's value")
        if feature.where is not None:
            condition(feature, columns)
        if feature.is_of_labels and feature.window is not None and feature.window + feature.delay <= label_delay:
            raise UsageError(
                f"{where} sees no label: labels are known after {durations.text(label_delay)} (label_delay), and it "
                f"looks back {durations.text(feature.window + feature.delay)}: give it a delay of that"
            )
    expressions_of(features, columns)


def column_type(feature: DeclaredFeature, columns: Mapping[str, Any]) -> str:
    """Return the SQL type of a feature's column: STRING for the values of a text column, otherwise DOUBLE."""
    from fraudlake.rules.columns import query_columns

    is_text = feature.aggregate == "value" and query_columns(columns)[str(feature.column)].type.name == "STRING"
    return "STRING" if is_text else "DOUBLE"


def require_kept(features: Collection[DeclaredFeature], row_retention: Mapping[str, timedelta]) -> None:
    """Check that no feature looks back further than silver keeps rows, since training would see less than scoring.

    Args:
        features: the features.
        row_retention: the setting.

    Raises:
        UsageError: a feature looks back further.
    """
    limit = row_retention.get(tables.SILVER_TRANSACTIONS.name)
    for feature in features:
        back = (feature.window or timedelta(0)) + feature.delay
        if limit is not None and back > limit:
            how_far = "to the first transaction" if feature.window == EVER else durations.text(back)
            raise UsageError(
                f"features: {feature.name} looks back {how_far}, and silver_transactions keeps rows for "
                f"{durations.text(limit)} (row_retention): shorten the window, or keep them longer"
            )


def condition(feature: DeclaredFeature, columns: Mapping[str, Any]) -> Any:
    """Compile the condition of a feature for the setting ``columns``; None if it has none.

    Raises:
        UsageError: the condition is not valid.
    """
    from fraudlake.rules.columns import TIME, query_columns
    from fraudlake_patterns import expressions, sql

    if feature.where is None:
        return None
    text = sql.Text(feature.where, f"features: {feature.name}: where")
    context = expressions.Context(text, query_columns(columns), TIME, is_outer=True)
    return expressions.condition(text.parse(0, len(feature.where)), context)


def expressions_of(features: Collection[DeclaredFeature], columns: Mapping[str, Any]) -> dict[str, Any]:
    """Compile the expressions among features for the setting ``columns``, by the names of the features.

    An expression may name columns, the lake's own features, declared ones, and other expressions: those come before it.

    Raises:
        UsageError: an expression is not valid, names something that is not there, or itself in a circle.
    """
    from fraudlake.rules.columns import TIME, query_columns
    from fraudlake_patterns import Column, expressions, sql
    from fraudlake_patterns.values import DOUBLE, STRING

    texts = {
        feature.name: sql.Text(feature.expression, f"features: {feature.name}: expression")
        for feature in features
        if feature.expression is not None
    }
    if not texts:
        return {}
    typed_columns = {feature.name: Column(feature.name, DOUBLE) for feature in (*OWN, *features)}
    for feature in features:
        if column_type(feature, columns) == "STRING":
            typed_columns[feature.name] = Column(feature.name, STRING)
    typed_columns |= query_columns(columns)
    parsed = {name: text.parse(0, len(text.sql)) for name, text in texts.items()}
    compiled: dict[str, Any] = {}

    def compile_with(name: str, above: tuple[str, ...]) -> None:
        if name in compiled:
            return
        if name in above:
            circle = " -> ".join([*above[above.index(name) :], name])
            raise UsageError(f"features: {name}: expression: it is computed from itself: {circle}")
        for other in sql.names_in(parsed[name]):
            if other in texts:
                compile_with(other, (*above, name))
        built = expressions.build(parsed[name], expressions.Context(texts[name], typed_columns, TIME, is_outer=True))
        if not (built.type.is_numeric or built.type.name == "BOOLEAN"):
            texts[name].refuse(0, f"a feature must be a number or BOOLEAN, not {built.type}")
        compiled[name] = built

    for name in texts:
        compile_with(name, ())
    return compiled
