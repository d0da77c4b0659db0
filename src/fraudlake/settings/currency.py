"""Currency: the column with a payment's currency, and the base currency that amounts are converted to."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_settings import NoDecode

from fraudlake.values import from_json

CODE = "^[A-Z]{3}$"
"""The form of a currency's code, as ISO 4217 has it."""


class Currency(BaseModel):
    """How amounts of several currencies become amounts of one, in ``silver_transactions.base_amount``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    column: str = "currency"
    """The declared column with the code of a payment's currency."""
    base: str = Field(pattern=CODE)
    """The currency of ``base_amount``; its rate is 1."""
    carry_days: int = Field(4, ge=0, le=31)
    """The number of days for which a rate also counts, if they have none, such as weekends and holidays."""


def _currency(value: object) -> object:
    """Read the setting, as a table or as JSON."""
    return from_json(value, '{"base": "EUR"}')


class Currencies(BaseModel):
    """Which currencies amounts are in."""

    currency: Annotated[Currency | None, NoDecode, BeforeValidator(_currency)] = Field(
        None, description='Column of the currency, and base of base_amount, as JSON: {"column": …, "base": "EUR"}.'
    )
