"""Colours that everybody can tell apart."""

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from sparsesecagg.lab.report.palette import BAD, DASHES, INK, RUNS, SYMBOLS

Matrix = NDArray[np.float64]

# How dichromats see linear RGB: Machado, Oliveira and Fernandes 2009, severity 1.
SEEN_BY = {
    "everyone": np.eye(3),
    "protanopes": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopes": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopes": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = TO_XYZ @ np.ones(3)


def linear(colour: str) -> Matrix:
    """Return a #rrggbb colour in linear RGB."""
    channels = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of WCAG 2."""
    luminances = sorted(float(TO_XYZ[1] @ linear(colour)) for colour in (one, other))
    return (luminances[1] + 0.05) / (luminances[0] + 0.05)


def lab(rgb: Matrix) -> Matrix:
    """Return linear RGB as CIELAB, where distance is about how different colours look."""
    ratio = np.clip(TO_XYZ @ np.clip(rgb, 0, 1) / WHITE, 1e-9, None)
    f = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_marks_and_text_stand_out_from_the_ground() -> None:
    """3:1 for graphics, 4.5:1 for text (WCAG 1.4.11 and 1.4.3)."""
    for colour in RUNS:
        assert contrast(colour, "#ffffff") >= 3
    for colour in (INK, BAD):
        assert contrast(colour, "#ffffff") >= 4.5


@pytest.mark.parametrize("who", SEEN_BY)
def test_runs_differ_for_everyone(who: str) -> None:
    """In CIELAB, where 2 is just noticeable: any two by 14, the four of the demo by 20."""
    for colours, apart in ((RUNS, 14), (RUNS[:4], 20)):
        seen = [lab(SEEN_BY[who] @ linear(colour)) for colour in colours]
        assert min(float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2)) >= apart


def test_colour_is_never_the_only_sign() -> None:
    """No two runs share both marker and dash."""
    assert len(set(SYMBOLS)) == len(RUNS) == len(DASHES)
