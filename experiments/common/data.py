"""Which data a result was measured on: its name, the hash of its samples and labels, and what is known about them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparsesecagg.lab.learning.data import load_dataset

NOTES = {
    "8287fcdcff9db5aa63b4b0c718fa8e068f234487d9b2e499c9ead53510db1a04": "embedded: 1,797 digits of 8 × 8 pixels",
    "9ffec36ea23fe42358a0038bb1ed8c4324739e634964ba8b4d0acdd9fabb71c9": "the original files",
    "e629a35ffe93dddf371ef4d0242052c62462285f979a576b9ee397f057480912": (
        "not the original pixels: all images were stored as JPEG of quality 75 and unpacked again"
    ),
}
UNKNOWN = "neither the original files nor those that earlier results were measured on"
NO_DATA = {"name": "none", "sha256": None, "note": "nothing is trained: users hold noise, or nothing at all"}


def describe_data(names: Sequence[str], data_dir: Path | None) -> dict[str, Any]:
    """Return name, SHA-256 and note of what an experiment trains on; of several data sets, one after the other."""
    if not names:
        return dict(NO_DATA)
    digests = [load_dataset(name, data_dir).digest for name in names]
    return {
        "name": ", ".join(names),
        "sha256": ", ".join(digests),
        "note": "; ".join(NOTES.get(digest, UNKNOWN) for digest in digests),
    }
