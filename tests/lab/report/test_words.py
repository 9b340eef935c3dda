"""Figures as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesecagg.lab.report.words import (
    SECOND_UNITS,
    against,
    bytes_text,
    count,
    percent,
    seconds_text,
    share,
    significant,
    times,
    unit_for,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.00062, "0.00062"),
        (9.7403, "9.74"),
        (97.46, "97.5"),
        (99.96, "100"),
        (1234567, "1\u202f234\u202f567"),
    ],
)
def test_three_digits_say_enough(value: float, text: str) -> None:
    """Without an exponent, without idle zeros."""
    assert significant(value) == text


@given(st.floats(min_value=1e-9, max_value=99.9))
def test_small_numbers_keep_three_significant_digits(value: float) -> None:
    """Reading the text back gives the number to half a percent."""
    assert float(significant(value)) == pytest.approx(value, rel=0.0051)


@given(st.floats(min_value=0, max_value=1e15))
def test_no_number_is_written_with_an_exponent(value: float) -> None:
    """People don't read those in a table."""
    assert "e" not in significant(value)


@pytest.mark.parametrize(
    ("value", "text"), [(64, "64\u00a0B"), (4432, "4.43\u00a0kB"), (6.65e6, "6.65\u00a0MB"), (2e9, "2\u00a0GB")]
)
def test_bytes_come_in_powers_of_a_thousand(value: float, text: str) -> None:
    """A megabyte is a million bytes, as in the paper."""
    assert bytes_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(2e-5, "20\u00a0µs"), (0.012, "12\u00a0ms"), (15.4, "15.4\u00a0s"), (90, "1.5\u00a0min"), (0, "0\u00a0µs")],
)
def test_seconds_come_in_their_best_unit(value: float, text: str) -> None:
    """From microseconds to hours."""
    assert seconds_text(value) == text


def test_a_column_shares_the_unit_of_its_largest_figure() -> None:
    """So that figures compare at a glance."""
    assert unit_for([64, 87_424]).name == "kB"
    assert unit_for([0.001, 120], SECOND_UNITS).name == "min"
    assert unit_for([]).name == "B"


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (19.7, "20 times less than SecAgg"),
        (2.42, "2.4 times less than SecAgg"),
        (1.0, "about as much as SecAgg"),
        (0.5, "2.0 times more than SecAgg"),
    ],
)
def test_ratios_are_said_in_words(ratio: float, text: str) -> None:
    """Less, the same, or more: never a flattering sign."""
    assert against(ratio, "SecAgg") == text


def test_absent_figures_are_a_dash() -> None:
    """Not a zero."""
    assert (percent(None), times(None)) == ("–", "–")
    assert (percent(0.9417), times(2.44), times(19.7)) == ("94.2\u202f%", "2.4×", "20×")


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (None, "–"),
        (1.0, "all"),
        (0.2797, "28\u202f%"),
        (1.97e-5, "0.002\u202f%"),
        (2.4e-26, "about none"),
        (0, "about none"),
    ],
)
def test_a_share_may_be_very_small(fraction: float | None, text: str) -> None:
    """Without claiming that it is nothing."""
    assert share(fraction) == text


def test_one_round_is_no_plural() -> None:
    """1 round, 2 rounds."""
    assert (count(1, "round"), count(2, "round")) == ("1 round", "2 rounds")
