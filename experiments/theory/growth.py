"""Theorem 3: how work and bytes grow. Counted, so that it does not depend on the machine; seconds are kept apart.

Work on masks is counted as bytes of AES key stream, of which every mask and every pair's pattern is made. Beside it
stands what the theorem leaves out: key agreements, and the field multiplications of secret sharing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from experiments.common.rounds import ANY_RUN, exactly_dropped, majority, parameters
from experiments.theory.checks import check
from experiments.theory.config import Growth
from sparsesecagg.crypto import shamir
from sparsesecagg.crypto.keys import KeyAgreement
from sparsesecagg.crypto.stream import KeyStream, MaskStream
from sparsesecagg.protocol import RoundOptions, Stage
from sparsesecagg.simulate import Cohort, Observer, run_round

PATTERNS = ("full", "pairwise")
ALONG = {"N": (1, 0), "d": (0, 1), "N and d": (1, 1)}
"""Direction → how often N and d double at each step."""
TOLERANCE = 0.1
"""By which a fitted exponent may exceed the theorem's: cohorts are small, and lower terms still show."""

_USER = {"N": 1.0, "d": 1.0, "N and d": 1.0}  # O(N + d)
_SERVER = {"N": 2.0, "d": 1.0, "N and d": 3.0}  # O(dN²)


def sizes(config: Growth, along: str) -> list[tuple[int, int]]:
    """Return the cohorts and dimensions of one direction."""
    by_clients, by_dim = ALONG[along]
    return [(config.clients << by_clients * step, config.dim << by_dim * step) for step in range(config.doublings + 1)]


def measure(config: Growth, pattern: str, clients: int, dim: int, seed: int) -> dict[str, Any]:
    """Run one round and count."""
    alpha = 1.0 if pattern == "full" else config.alpha
    options = RoundOptions(pattern=pattern, alpha=alpha, threshold=majority(clients), dropout=config.dropout)
    params = parameters(clients, dim, options, seed)
    rng = np.random.default_rng([seed, clients, dim])
    update = rng.normal(0, 0.1, dim)
    with counted_key_stream() as drawn, counted_keys() as keys:
        mark = _Marks(drawn)
        outcome = run_round(
            params,
            lambda _: update,
            # Randomness not from a key stream, which would be counted.
            Cohort(ANY_RUN, lambda user: np.random.default_rng([seed, user]).bytes),
            drops=exactly_dropped(clients, config.dropout, rng),
            observer=mark,
        )
        # Masks are made by users from the first order to the last UPLOAD, and by the server after the last share.
        users, server = mark.last[Stage.UPLOAD] - mark.first[Stage.UPLOAD], drawn() - mark.last[Stage.UNMASK]
    result = outcome.result
    return {
        "numbers": {
            "pattern": pattern,
            "clients": clients,
            "dim": dim,
            "user_work": users / len(result.survivors),
            "server_work": server,
            # Once per run and pair to seal shares, and in each round once per pair that masks.
            "agreements_per_user": keys["agreements"] / clients,
            "sharing_per_package": keys["sharing"] / keys["packages"],
            "upload_bytes": float(np.mean(result.sent_bytes[Stage.UPLOAD.name])),
            "other_bytes": sum(
                float(np.mean(sent)) for stage, sent in result.sent_bytes.items() if stage != Stage.UPLOAD.name
            ),
            "exact": outcome.exact,
        },
        "timings": {
            "pattern": pattern,
            "clients": clients,
            "dim": dim,
            "user_seconds": outcome.client_seconds["total"],
            "server_seconds": outcome.server_seconds["total"],
        },
    }


class _Marks(Observer):
    """By stage: how much key stream was drawn when the first user was asked, and when the last answer came."""

    def __init__(self, drawn: Callable[[], int]) -> None:
        self._drawn = drawn
        self.first: dict[Stage, int] = {}
        self.last: dict[Stage, int] = {}

    def to_client(self, stage: Stage, user: int, data: bytes) -> None:  # noqa: ARG002
        self.first.setdefault(stage, self._drawn())

    def to_server(self, stage: Stage, user: int, data: bytes) -> None:  # noqa: ARG002
        self.last[stage] = self._drawn()


@contextmanager
def counted_key_stream() -> Iterator[Callable[[], int]]:
    """Count the bytes of key stream that are drawn for masks; gives a function that returns the count so far.

    Not what sharing draws, which happens in between: packages leave together with uploads.
    """
    drawn, shares = 0, False
    fill, once, split = KeyStream.fill, MaskStream.fill_once, shamir.split

    def counting(stream: KeyStream, buffer: Any, size: int) -> None:
        nonlocal drawn
        drawn += 0 if shares else size
        fill(stream, buffer, size)

    def counting_once(stream: MaskStream, buffer: Any, size: int) -> None:
        nonlocal drawn
        before = drawn
        once(stream, buffer, size)
        drawn = before + size  # Long ones go through `fill`, which has counted them.

    def splitting(*arguments: Any) -> Any:
        nonlocal shares
        shares = True
        try:
            return split(*arguments)
        finally:
            shares = False

    with (
        patch.object(KeyStream, "fill", counting),
        patch.object(MaskStream, "fill_once", counting_once),
        patch.object(shamir, "split", splitting),
    ):
        yield lambda: drawn


@contextmanager
def counted_keys() -> Iterator[dict[str, int]]:
    """Count key agreements, packages of shares, and the multiplications of a secret's polynomial that they take."""
    found = {"agreements": 0, "packages": 0, "sharing": 0}
    agree, split = KeyAgreement.with_peer, shamir.split

    def agreeing(own: KeyAgreement, public: bytes) -> Any:
        found["agreements"] += 1
        return agree(own, public)

    def splitting(secrets: Any, holders: Any, threshold: int, randomness: Any) -> Any:
        found["packages"] += 1
        found["sharing"] += len(secrets) * len(holders) * (threshold - 1)
        return split(secrets, holders, threshold, randomness)

    with patch.object(KeyAgreement, "with_peer", agreeing), patch.object(shamir, "split", splitting):
        yield found


def exponents(config: Growth, points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Fit work = constant · scale^e along every direction, by least squares on logarithms."""
    known = {(point["pattern"], point["clients"], point["dim"]): point for point in points}
    found = []
    for pattern in PATTERNS:
        for along in ALONG:
            here = [known[pattern, clients, dim] for clients, dim in sizes(config, along)]
            steps = np.arange(len(here), dtype=np.float64)
            fits = {
                name: float(np.polyfit(steps, np.log2([point[name] for point in here]), 1)[0])
                for name in (
                    "user_work",
                    "server_work",
                    "upload_bytes",
                    "other_bytes",
                    "agreements_per_user",
                    "sharing_per_package",
                )
            }
            found.append({"pattern": pattern, "along": along, **fits})
    return found


def checks(fits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Hold the published pattern's exponents against O(N + d) and O(dN²), SecAgg's against the server's alone."""
    found = []
    for fit in fits:
        pattern, along = fit["pattern"], fit["along"]
        for who, limits in (("user", _USER), ("server", _SERVER)):
            if (pattern, who) == ("full", "user"):
                continue  # It is d(N−1) words in SecAgg, which Theorem 3 calls O(N + d): see `remark`.
            exponent = fit[f"{who}_work"]
            found.append(
                check(
                    "Theorem 3",
                    f"{pattern}: exponent of the {who}'s work as {along} grow{'s' if len(along) == 1 else ''}",
                    exponent,
                    bound=limits[along],
                    holds=exponent <= limits[along] + TOLERANCE,
                    error_rate=0,
                    note="O(N + d)" if who == "user" else "O(dN²)",
                )
            )
    return found


def unmentioned(points: list[dict[str, Any]], fits: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what Theorem 3 does not mention: the published pattern's keys and shares, and its factor of two."""
    by_size = {(one["pattern"], one["clients"], one["dim"]): one for one in points}
    size = max((clients, dim) for _, clients, dim in by_size)
    published, secagg = by_size["pairwise", *size], by_size["full", *size]
    along = next(fit for fit in fits if (fit["pattern"], fit["along"]) == ("pairwise", "N"))
    return {
        "clients": size[0],
        "dim": size[1],
        "user_factor": published["user_work"] / secagg["user_work"],
        "server_factor": published["server_work"] / secagg["server_work"],
        "agreements_exponent": along["agreements_per_user"],
        "sharing_exponent": along["sharing_per_package"],
    }


def remark(fits: list[dict[str, Any]]) -> str:
    """Say what the counts show about SecAgg's users."""
    both = next(fit for fit in fits if (fit["pattern"], fit["along"]) == ("full", "N and d"))
    return (
        f"SecAgg's users: exponent {both['user_work']:.2f} as N and d grow together. They expand d(N−1) mask words, as "
        "Bonawitz et al. state; Theorem 3's O(N + d) holds for what `pairwise` expands here, not for SecAgg."
    )
