"""Comparing a case of a file with what it should be."""

from collections.abc import Callable
from typing import Any

Case = dict[str, Any]  # JSON, as it was read.
Check = tuple[str, Callable[[], None]]  # What is checked, and the check: it raises if the case is wrong.


class Mismatch(Exception):
    """The vector says something else than this verifier finds."""


def expect(what: str, stated: object, found: object) -> None:
    """Compare what the vector states with what was found; types count, since 1 and 1.0 differ on the wire."""
    if stated != found or type(stated) is not type(found):
        raise Mismatch(f"{what}: the vector states {shortened(stated)}, found {shortened(found)}")


def shortened(value: object) -> str:
    """Show the beginning of a long value."""
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + "…"


def take(case: Case, names: str, optional: str = "") -> list[Any]:
    """Return the named values of a case, which must have no others: nothing that a vector states goes unread."""
    missing = set(names.split()) - set(case)
    unknown = set(case) - set(names.split()) - set(optional.split()) - {"about"}
    if missing or unknown:
        raise Mismatch(f"keys missing: {sorted(missing)}, unknown: {sorted(unknown)}")
    return [case.get(name) for name in [*names.split(), *optional.split()]]


def unhex(text: str) -> bytes:
    """Read lower-case hexadecimal."""
    data = bytes.fromhex(text)
    if data.hex() != text:
        raise Mismatch(f"not plain lower-case hexadecimal: {shortened(text)}")
    return data
