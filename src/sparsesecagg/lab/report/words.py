"""Figures as people read them: bytes, seconds, percentages, ratios, each with its unit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

NOTHING = "–"


@dataclass(frozen=True)
class Unit:
    """A unit of one figure, or of all on an axis."""

    name: str
    size: float

    def text(self, value: float) -> str:
        """Write a value with three significant digits and the unit, which a line break never parts."""
        return f"{significant(value / self.size)}\u00a0{self.name}"


BYTE_UNITS = (Unit("B", 1), Unit("kB", 1e3), Unit("MB", 1e6), Unit("GB", 1e9))
SECOND_UNITS = (Unit("µs", 1e-6), Unit("ms", 1e-3), Unit("s", 1), Unit("min", 60), Unit("h", 3600))


def unit_for(values: Iterable[float], units: tuple[Unit, ...] = BYTE_UNITS) -> Unit:
    """Return the largest unit that the largest value reaches, so that one column compares at a glance."""
    largest = max((abs(value) for value in values), default=0.0)
    fitting = [unit for unit in units if largest >= unit.size]
    return fitting[-1] if fitting else units[0]


def significant(value: float, digits: int = 3) -> str:
    """Write a number with this many significant digits, without an exponent or trailing zeros."""
    if value == 0:
        return "0"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}".replace(",", "\u202f")
    decimals = digits
    while abs(value) < 10 ** (digits - 1 - decimals):
        decimals += 1
    text = f"{float(f'{value:.{digits}g}'):.{decimals}f}"
    return text.rstrip("0").rstrip(".")


def bytes_text(value: float) -> str:
    """Write a number of bytes in its own best unit."""
    return unit_for([value]).text(value)


def seconds_text(value: float) -> str:
    """Write a duration in its own best unit."""
    return unit_for([value], SECOND_UNITS).text(value)


def percent(fraction: float | None, deviation: float | None = None) -> str:
    """Write a fraction as a percentage with one decimal, and its standard deviation over seeds if there is one."""
    if fraction is None:
        return NOTHING
    spread = "" if deviation is None else f"\u202f±\u202f{100 * deviation:.1f}"
    return f"{100 * fraction:.1f}{spread}\u202f%"


def share(fraction: float | None) -> str:
    """Write a share that may be very small: all, 28 %, 0.002 %, or about none."""
    if fraction is None:
        return NOTHING
    if fraction >= 1:
        return "all"
    return f"{significant(100 * fraction, 2)}\u202f%" if fraction >= 1e-8 else "about none"


def readable(exposed: float | None) -> str:
    """Write what the server can read: everything, a share of single values, or sums over users only."""
    return NOTHING if exposed is None else "only sums" if exposed == 0 else share(exposed)


def hidden_among(users: object) -> str:
    """Write how many honest users every sum has."""
    return NOTHING if not isinstance(users, int) else count(users, "user")


def times(ratio: float | None) -> str:
    """Write how many times smaller something is: 17×, 2.4×, 0.9×."""
    if ratio is None:
        return NOTHING
    return f"{ratio:.0f}×" if ratio >= 10 else f"{ratio:.1f}×"


def against(ratio: float, other: str) -> str:
    """Say in words how a quantity compares: `ratio` is the other's size divided by ours."""
    if 0.95 <= ratio <= 1.05:
        return f"about as much as {other}"
    if ratio > 1:
        return f"{_number(ratio)} times less than {other}"
    return f"{_number(1 / ratio)} times more than {other}"


def _number(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}"


def count(number: int, noun: str) -> str:
    """Write a number with its noun: 1 round, 30 rounds."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
