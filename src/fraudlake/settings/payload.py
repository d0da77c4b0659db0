"""Payload: maps fields of the payload, and their units, to ``accountId``, ``dt``, ``amount`` and ``alert``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
)
from pydantic_settings import NoDecode

from fraudlake.settings import time_pattern
from fraudlake.values import from_json

NAMES = ("accountId", "dt", "amount", "alert")
"""The fields of the landing contract that can be mapped to another field."""
_UNITS: dict[str, tuple[str, ...]] = {"amount": ("minor",), "dt": ("seconds", "milliseconds", "microseconds")}


class PayloadField(BaseModel):
    """The field of the payload that fills a field of the contract, and the form of its values.

    ``unit`` applies to numbers, ``pattern`` and ``zone`` to texts.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    field: str = Field(alias="from", min_length=1)
    """The field's name; ``card.number`` is ``number`` in the object ``card``, unless a field has this very name."""
    unit: Literal["minor", "seconds", "milliseconds", "microseconds"] | None = None
    """For ``amount``: ``minor``, hundredths. For ``dt``: the unit of a number since 1970."""
    pattern: str | None = None
    """For ``dt``: the form of texts, such as ``dd.MM.yyyy HH:mm:ss``; by default ISO-8601."""
    zone: str | None = None
    """For ``dt``: the time zone of texts that do not contain one; by default UTC."""

    @field_validator("field")
    @classmethod
    def _names_one_field(cls, name: str) -> str:
        if "[" in name or not all(name.split(".")):
            raise ValueError("must be a field's name, or names in objects such as 'card.number'; a list has no field")
        return name

    @field_validator("pattern")
    @classmethod
    def _pattern_is_known(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            time_pattern.as_regex(pattern)
        return pattern

    @field_validator("zone")
    @classmethod
    def _zone_is_known(cls, zone: str | None) -> str | None:
        try:
            return zone if zone is None else ZoneInfo(zone).key
        except (OSError, ValueError, KeyError):  # ZoneInfoNotFoundError is a KeyError
            raise ValueError("must be a time zone such as 'UTC' or 'Europe/Berlin'") from None

    @model_serializer(mode="wrap")
    def _omit_unset(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit fields that are not set, since TOML has no null."""
        return {name: value for name, value in write(self).items() if value is not None}

    @property
    def as_iso(self) -> tuple[str, str] | None:
        """The regular expression of ``pattern``, and the replacement that converts its texts to ISO-8601."""
        return None if self.pattern is None else time_pattern.as_regex(self.pattern)

    @property
    def words(self) -> str:
        """A description of the field with its unit or form."""
        parts = [f"'{self.field}'"]
        parts += [f"in {'hundredths' if self.unit == 'minor' else self.unit}"] if self.unit else []
        parts += [f"as '{self.pattern}'"] if self.pattern else []
        return " ".join([*parts, *([f"in {self.zone}"] if self.zone else [])])


def _fields(value: object) -> object:
    """Read fields by name, as a table or as JSON; ``alert = "is_fraud"`` is short for ``{from = "is_fraud"}``."""
    value = from_json(value)
    if not isinstance(value, dict):
        raise ValueError('must be a table of fields, such as accountId = "card"')
    return {name: _field(name, part) for name, part in value.items()}


def _field(name: str, value: object) -> object:
    if name not in NAMES:
        raise ValueError(f"'{name}' cannot come from another field; only {', '.join(NAMES)} can")
    if not isinstance(value, str | dict | PayloadField):
        raise ValueError(f"'{name}' must be a field's name, or a table of 'from' and its unit or form")
    if isinstance(value, str):
        return {"from": value}
    return {"from": name, **value} if isinstance(value, dict) else value


def _units_suit(payload: dict[str, PayloadField]) -> dict[str, PayloadField]:
    for name, field in payload.items():
        units = _UNITS.get(name, ())
        if field.unit is not None and field.unit not in units:
            raise ValueError(f"'{name}' cannot be in '{field.unit}': {_choice(units)}")
        if name != "dt" and (field.pattern or field.zone):
            raise ValueError(f"'{name}' has no pattern and no zone: only dt is a time")
    return payload


def _choice(units: tuple[str, ...]) -> str:
    return f"its unit is {' or '.join(units)}" if units else "it has no unit"


DeclaredPayload = Annotated[dict[str, PayloadField], NoDecode, BeforeValidator(_fields), AfterValidator(_units_suit)]


def complete(payload: Mapping[str, PayloadField]) -> dict[str, PayloadField]:
    """Return the field for each of :data:`NAMES`, by default the field of the same name."""
    return {name: payload.get(name) or PayloadField.model_validate({"from": name}) for name in NAMES}


class Payload(BaseModel):
    """Which fields of the payload are the landing contract's."""

    payload: DeclaredPayload = Field(
        {},
        description='Fields that accountId, dt, amount and alert come from, as JSON: {"accountId": "card.number", …}.',
    )
