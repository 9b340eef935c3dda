"""What this project claims about its speed, each claim computed from the result files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import results

COMPARE_FLOWER = "compare-flower"
COMPARE_SECAGG = "compare-secagg"
COMPARE_WORDS = "compare-words"
SCALING = "scaling"
MEMORY = "memory"
LIMITS = "limits"
LARGE = "large"
SCALE = "scale"
THREADS = "threads"
WHOLE = "whole"
AUTHENTICATED = "authenticated"
DEPLOYMENT = "deployment"
DEPLOYMENT_CONFIRM = "deployment-confirm"
DEPLOYMENT_KILL = "deployment-kill"


@dataclass(frozen=True)
class Claim:
    """A number that was asked for and the number that was measured."""

    text: str
    asked: str
    measured: str
    holds: bool


def at_least(text: str, asked: float, measured: float, unit: str = "×") -> Claim:
    """Return a claim that a number is not below what was asked."""
    return Claim(text, f"≥ {asked:g}{unit}", f"{measured:.3g}{unit}", measured >= asked)


def at_most(text: str, asked: float, measured: float, unit: str = "") -> Claim:
    """Return a claim that a number is not above what was asked."""
    return Claim(text, f"≤ {asked:g}{unit}", f"{measured:.3g}{unit}", measured <= asked)


def claims(directory: Path | None = None) -> list[Claim]:
    """Return all claims whose result files are there."""
    return [claim for name, check in _CHECKS for claim in check(_read(name, directory))]


def _read(name: str, directory: Path | None) -> dict[str, Any] | None:
    try:
        return results.read(name, directory)
    except FileNotFoundError:
        return None


def _flower(result: dict[str, Any] | None) -> Iterator[Claim]:
    if result is None or "flower" not in result["ratios"]:
        return
    committee, secagg = result["ratios"]["flower"]["committee"], result["ratios"]["flower"]["secagg"]
    yield at_least("committee against Flower's SecAgg+: client", 120, committee["client"])
    yield at_least("committee against Flower's SecAgg+: server", 1200, committee["server"])
    yield at_least("committee against Flower's SecAgg+: bytes sent", 64, committee["sent_bytes"])
    yield at_least("our SecAgg against Flower's SecAgg+: client", 5, secagg["client"])
    yield at_least("our SecAgg against Flower's SecAgg+: server", 50, secagg["server"])


def _secagg(result: dict[str, Any] | None) -> Iterator[Claim]:
    if result is None:
        return
    for system, upload, server in (("committee", 75, 80), ("pairwise", 25, 12)):
        ratio = result["ratios"]["secagg"][system]
        yield at_least(f"{system} against our SecAgg: client UPLOAD", upload, ratio["client_upload"])
        yield at_least(f"{system} against our SecAgg: server", server, ratio["server"])


def _scaling(result: dict[str, Any] | None) -> Iterator[Claim]:
    if result is None:
        return
    for system in ("committee", "pairwise"):
        fitted = result["sweeps"]["upload_dim"]["series"][system]["exponent"]
        yield at_most(f"{system}: exponent of client UPLOAD in d", 1.1, fitted)
    for name, what in (("upload_fixed_committee", "same model"), ("upload_fixed_share", "same share sent")):
        points = dict(result["sweeps"][name]["series"]["committee"]["points"])
        growth = points[1000.0] / points[100.0]
        yield at_most(f"committee of fixed size, {what}: client UPLOAD from N = 100 to 1,000", 1.5, growth, "×")


def _memory(result: dict[str, Any] | None) -> Iterator[Claim]:
    if result is None:
        return
    for system, measured in result["systems"].items():
        above = measured["above_update_bytes"] / 1e6
        yield at_most(f"{system}, d = 10⁸, α = 0.01: UPLOAD's peak above the update", 250, above, " MB")


def _limits(result: dict[str, Any] | None) -> Iterator[Claim]:
    if result is None:
        return
    for bits, measured in result["mask_expansion"].items():
        fraction = 100 * measured["fraction_of_aes"]
        yield at_least(f"mask expansion, {bits}-bit words, of raw AES-256-CTR", 40, fraction, " %")


def _large(result: dict[str, Any] | None) -> Iterator[Claim]:
    if result is None:
        return
    peak = result["peak_memory_bytes"] / 1e9
    yield at_most("N = 1,000, d = 1,000,000, a whole round: peak memory", 4, peak, " GB")


def _scale(result: dict[str, Any] | None) -> Iterator[Claim]:
    if result is None:
        return
    yield at_most("N = 10,000, d = 1,000,000, a whole round: peak memory", 2, result["peak_memory_bytes"] / 1e9, " GB")
    for cost, growth in result["growth"].items():
        yield at_most(f"N = 10,000 against N = 1,000: {cost.replace('_', ' ')} per user", 1.2, growth, "×")


def _threads(result: dict[str, Any] | None) -> Iterator[Claim]:
    if result is None:
        return
    yield at_least("N = 100, d = 10⁷: two threads open a round as many times as fast as one", 1.6, result["speedup"])


def _whole(result: dict[str, Any] | None) -> Iterator[Claim]:
    if result is None:
        return
    steps = result["systems"]["committee_steps"]["total_bytes"] / 1e3
    yield at_most("N = 100, d = 165,000: bytes up and down with the model, per user and round", 120, steps, " kB")
    if "flower_secagg_plus" in result["ratios"]:
        ratio = result["ratios"]["flower_secagg_plus"]
        yield at_least("committee with steps against Flower's SecAgg+ with its model: bytes in all", 17, ratio)


def _deployment(result: dict[str, Any] | None) -> Iterator[Claim]:
    if result is None:
        return
    settings = result["settings"]
    text = f"deployment of {settings['nodes']} nodes" + ", two of them killed" * settings["kill"]
    text += ", with CONFIRM" * settings["confirm"]
    exchanges, ratio = (3, 3.3) if settings["confirm"] else (2, 2.3)
    yield at_most(f"{text}: exchanges per round", exchanges, result["exchanges"])
    yield at_most(f"{text}: seconds per round against plain FedAvg", ratio, result["ratio_to_plain"], "×")


def _authenticated(result: dict[str, Any] | None) -> Iterator[Claim]:
    if result is None:
        return
    for side in ("client", "server"):
        what = f"N = 100, roster, CONFIRM and a ledger on disk: {side} against a plain one"
        yield at_most(f"{what} with its ledger on disk", 1.5, result[f"{side}_ratio_on_disk"], "×")
        ratio = result[f"{side}_ratios"]["authenticated_on_disk"]
        yield at_most(f"{what} with its ledger in memory", 1.5, ratio, "×")


_CHECKS = (
    (WHOLE, _whole),
    (DEPLOYMENT, _deployment),
    (DEPLOYMENT_CONFIRM, _deployment),
    (DEPLOYMENT_KILL, _deployment),
    (COMPARE_FLOWER, _flower),
    (COMPARE_SECAGG, _secagg),
    (AUTHENTICATED, _authenticated),
    (SCALING, _scaling),
    (LARGE, _large),
    (SCALE, _scale),
    (THREADS, _threads),
    (MEMORY, _memory),
    (LIMITS, _limits),
)
