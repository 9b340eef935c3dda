"""How a vector looks, and where its bytes come from."""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import shake_256
from typing import Any

Vector = dict[str, Any]
"""The content of one file."""

_WIDTH = 110


def named_bytes(name: str, size: int) -> bytes:
    """Return bytes that look random and depend on their name alone."""
    return shake_256(name.encode()).digest(size)


def integers(values: Iterable[Any]) -> list[int]:
    """Return plain integers, from NumPy's or anybody else's."""
    return [int(value) for value in values]


def wide(value: int) -> str:
    """Write a 64-bit integer in hexadecimal: JSON readers often keep 53 bits only."""
    return f"0x{value:016x}"


def to_json(vector: Vector) -> str:
    """Write a vector so that people can read it: a list of plain values stays in one paragraph."""
    return _write(vector, 0) + "\n"


def _write(value: Any, depth: int) -> str:
    inside, outside = " " * (depth + 1), " " * depth
    if isinstance(value, dict) and value:
        lines = [f"{json.dumps(key)}: {_write(item, depth + 1)}" for key, item in value.items()]
        whole = "{" + ", ".join(lines) + "}"
        if len(whole) + depth < _WIDTH and "\n" not in whole and not _nested(value):
            return whole
        return "{\n" + ",\n".join(inside + line for line in lines) + f"\n{outside}}}"
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        return "[\n" + ",\n".join(inside + _write(item, depth + 1) for item in value) + f"\n{outside}]"
    if isinstance(value, list):
        return _paragraph([json.dumps(item, ensure_ascii=False) for item in value], inside, outside)
    return json.dumps(value, ensure_ascii=False)


def _nested(value: dict[str, Any]) -> bool:
    return any(isinstance(item, dict) for item in value.values()) or len(value) > 4


def _paragraph(items: list[str], inside: str, outside: str) -> str:
    """Write plain values on one line, or on several of about the same length."""
    if sum(len(item) + 2 for item in items) + len(inside) < _WIDTH:
        return "[" + ", ".join(items) + "]"
    lines, line = [], inside
    for place, item in enumerate(items):
        text = item + (", " if place < len(items) - 1 else "")
        if len(line) + len(text) > _WIDTH and line.strip():
            lines.append(line.rstrip())
            line = inside
        line += text
    return "[\n" + "\n".join([*lines, line]) + f"\n{outside}]"
