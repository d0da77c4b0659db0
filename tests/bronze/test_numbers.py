"""Decimals and integers as doubles, compared with what Python reads in their text."""

from __future__ import annotations

import decimal
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fraudlake.bronze import numbers

DECIMALS = {32: pa.decimal32, 64: pa.decimal64, 128: pa.decimal128, 256: pa.decimal256}
DIGITS = {32: 9, 64: 18, 128: 38, 256: 76}


def stored(kind: pa.DataType, unscaled: list[int | None]) -> pa.Array:
    """Decimals by the integers that they are stored as; Python's constructor refuses many of a negative scale."""
    width = kind.byte_width
    raw = b"".join((number or 0).to_bytes(width, "little", signed=True) for number in unscaled)
    valid = pa.array([number is not None for number in unscaled]).buffers()[1]
    return pa.Array.from_buffers(kind, len(unscaled), [valid, pa.py_buffer(raw)])


def nearest(unscaled: int | None, scale: int) -> float | None:
    """The double that the number's text gives; None if none is finite."""
    if unscaled is None:
        return None
    double = float(f"{unscaled}E{-scale}")
    return None if double in (float("inf"), float("-inf")) else double


@pytest.mark.parametrize("bits", [32, 64, 128, 256])
def test_all_cents_are_the_doubles_that_they_are_written_as(bits: int) -> None:
    cents = [*range(200_001)]
    assert numbers.doubles(stored(DECIMALS[bits](9, 2), cents)).to_pylist() == [float(f"{n}E-2") for n in cents]


@st.composite
def decimals(draw: st.DrawFn) -> tuple[pa.DataType, list[int | None]]:
    bits = draw(st.sampled_from([32, 64, 128, 256]))
    precision = draw(st.integers(1, DIGITS[bits]))
    scale = draw(st.one_of(st.integers(0, precision), st.integers(-30, 30), st.sampled_from([-300, 300, 400])))
    most = 10**precision - 1
    edges = [n for edge in (2**53, 2**63, 2**64) for n in (edge - 1, edge, edge + 1, -edge) if abs(n) <= most]
    number = st.one_of(st.none(), st.integers(-most, most), st.integers(-100, 100).filter(lambda n: abs(n) <= most))
    unscaled = st.lists(st.one_of(number, st.sampled_from(edges)) if edges else number, min_size=1, max_size=6)
    return DECIMALS[bits](precision, scale), draw(unscaled)


@given(decimals(), st.integers(0, 3))
def test_a_decimal_is_the_nearest_double_whatever_its_width_and_scale(
    given_: tuple[pa.DataType, list[int | None]], skipped: int
) -> None:
    kind, unscaled = given_
    expected = [nearest(number, kind.scale) for number in unscaled]
    assert numbers.doubles(stored(kind, unscaled)).to_pylist() == expected
    assert numbers.doubles(stored(kind, unscaled).slice(skipped)).to_pylist() == expected[skipped:]


def test_a_decimal_written_as_a_text_is_read_as_the_same_number() -> None:
    with decimal.localcontext(prec=100):
        for scale in (-100, -3, 0, 2, 38, 100):
            (text,) = numbers.decimal_texts(stored(pa.decimal256(76, scale), [-(10**75) - 7])).to_pylist()
            assert Decimal(text) == Decimal(-(10**75) - 7).scaleb(-scale)


@pytest.mark.parametrize(
    ("values", "doubles"),
    [
        (pa.array([2**53, 2**53 + 1, 2**53 + 2, None]), [2.0**53, None, 2.0**53 + 2, None]),
        (pa.array([-(2**53) - 1, -(2**63), 2**63 - 1]), [None, -(2.0**63), None]),
        (pa.array([2**53, 2**63, 2**64 - 1, 2**53 + 1, None], pa.uint64()), [2.0**53, 2.0**63, None, None, None]),
        (pa.array([7], pa.uint64()), [7.0]),
        (pa.array([0.35], pa.float32()), [0.3499999940395355]),
        (pa.array([0.35], pa.float16()), [0.35009765625]),
        (pa.array([-0.0, float("inf")]), [-0.0, float("inf")]),
    ],
)
def test_an_integer_is_a_double_only_if_it_is_the_same_number(values: pa.Array, doubles: list[float | None]) -> None:
    assert numbers.doubles(values).to_pylist() == doubles


def test_numbers_of_json_follow_the_same_rule() -> None:
    assert numbers.double(Decimal("19.99")) == 19.99
    assert numbers.double(2**53) == 2.0**53
    assert numbers.double(10**22) == 1e22
    assert [numbers.double(number) for number in (2**53 + 1, 10**400, Decimal("1e400"))] == [None, None, None]


@pytest.mark.parametrize("number", [7.5, float("nan"), float("inf"), 2.0**63, Decimal("7.1"), Decimal("1e999999999")])
def test_a_number_that_is_no_integer_of_64_bits_is_none(number: float | Decimal) -> None:
    assert numbers.integer(number) is None
