"""The parameters of a run: public, the same for everybody, and bound into every key.

Server and clients each hold a copy. What changes from round to round (the model, who takes part) is in the round's
order; `protocol/order.py`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec

from sparsesecagg.crypto.kdf import DIGEST_SIZE, digest
from sparsesecagg.errors import InvalidInput, MalformedMessage
from sparsesecagg.field import Word
from sparsesecagg.patterns import PATTERNS, SMALLEST_COMMITTEE, Groups, Slices, draw_groups, group_sizes, pairwise
from sparsesecagg.patterns.anonymity import Structure
from sparsesecagg.patterns.sizes import scaled
from sparsesecagg.quantize import Digits, Quantizer

VERSION = 2
MAX_CLIENTS = 1 << 20
MAX_DIM = 1 << 40
MAX_WEIGHT = 1 << 40
SMALLEST_CLIP, LARGEST_CLIP = 1e-30, 1e30  # Beyond these, float32 runs out.
USUAL_POD = 128
"""Users per pod where nobody says otherwise: key work grows with the pod, safety from dropouts too."""


class Parameters(msgspec.Struct, frozen=True, array_like=True, dict=True, forbid_unknown_fields=True):
    """Everything public that stays the same in a run. Make one with `create`, which fills in defaults and checks."""

    version: int
    clients: int
    dim: int
    pattern: str
    alpha_q32: int
    """The α that was asked for, in units of 2^−32."""
    committees: int
    """G: also the number of slices that the model is cut into."""
    pods: int
    served: int
    """Slices that a committee sends per round."""
    modulus_bits: int
    neighbours: int
    """Degree of share graph and mask graph; 0 means complete."""
    threshold: int
    """Shares needed to restore a secret (t) in the smallest pod; larger pods need the same part of theirs."""
    min_survivors: int
    """Users that a sum must have (s) in the smallest committee; larger ones need the same part of theirs."""
    confirm: bool
    """Users confirm to each other who survived before they open the sum."""
    clip: float
    max_weight: int
    """0: all weights are one. Otherwise weights are private integers up to this."""
    dropout: float
    """The dropout rate θ that is expected: for the paper's normalisation, and to notice wrongful exclusion."""
    colluders: int
    """Users that may help the server, as planned; the jury that draws the groups is sized for them."""
    session: bytes
    """Tells runs apart, and commits the server to its part of the draw in a plain run: see protocol/draws.py."""
    roster_digest: bytes
    """Digest of the users' identity keys; zeros in a run without authentication."""

    @staticmethod
    def create(
        *,
        clients: int,
        dim: int,
        pattern: str = "committee",
        alpha: float | None = None,
        committee_size: int | None = None,
        pod_size: int | None = None,
        committees: int | None = None,
        pods: int | None = None,
        served: int | None = None,
        dropout: float = 0.0,
        modulus_bits: int = 32,
        neighbours: int | None = None,
        threshold: int | None = None,
        min_survivors: int | None = None,
        confirm: bool | None = None,
        clip: float = 1.0,
        max_weight: int = 0,
        colluders: int | None = None,
        session: bytes = b"",
        roster_digest: bytes = b"",
    ) -> Parameters:
        """Return checked parameters.

        `alpha`: fraction of the model that each user sends, 1 if left out. `committee_size`, `pod_size`: users per
        group, approximately; by default as many committees as 1/α rounds to, and pods of about 128. `committees`,
        `pods`, `served`: the same as exact numbers, as a plan has them. `clip`: the largest magnitude an update's
        coordinate may have. `neighbours`: degree of the graphs of `full` and `pairwise`, rounded up to even; None for
        complete ones. `threshold`: more than half of a secret's holders by default, more than two thirds with a
        roster. `min_survivors`: half of a committee by default.
        """
        asked = 1.0 if alpha is None else alpha
        if not (isinstance(asked, int | float) and 0 < asked <= 1):
            raise InvalidInput("alpha", f"must be in (0, 1], got {asked}")
        _require_range("clients", clients, 3, MAX_CLIENTS)
        if pattern not in PATTERNS:
            raise InvalidInput("pattern", f"must be one of {', '.join(PATTERNS)}, got {pattern!r}")
        alpha_q32 = max(1, round(asked * 2**32))
        if committees is None:
            committees, pods, served = _structure(pattern, clients, alpha_q32, committee_size, pod_size)
            _require_company(clients, committees, asked)
            if alpha is None and committee_size is None:
                served = committees
        elif pattern == "committee":
            _require_range("committees", committees, 1, clients // SMALLEST_COMMITTEE)
        pods, served = pods or 1, served or 1
        _require_range("served", served, 1, committees)
        if alpha is None:
            alpha_q32 = max(1, round(served / committees * 2**32))
        degree = _even_degree(pattern, neighbours, clients)
        _require_range("committees", committees, 1, clients)
        _require_range("pods", pods, 1, committees)
        sizes = group_sizes(clients, committees, pods)
        authenticated = any(roster_digest)
        holders = degree + 1 if degree else min(map(sum, sizes))
        params = Parameters(
            version=VERSION,
            clients=clients,
            dim=dim,
            pattern=pattern,
            alpha_q32=alpha_q32,
            committees=committees,
            pods=pods,
            served=served,
            modulus_bits=modulus_bits,
            neighbours=degree,
            threshold=(2 * holders // 3 if authenticated else holders // 2) + 1 if threshold is None else threshold,
            min_survivors=max(2, -(-min(map(min, sizes)) // 2)) if min_survivors is None else min_survivors,
            confirm=authenticated if confirm is None else confirm,
            clip=float(clip),
            max_weight=max_weight,
            dropout=float(dropout),
            colluders=(clients // 10 if authenticated else 0) if colluders is None else colluders,
            session=session or bytes(DIGEST_SIZE),
            roster_digest=roster_digest or bytes(DIGEST_SIZE),
        )
        params.check()
        return params

    def check(self) -> None:
        """Raise `InvalidInput` unless the parameters make sense; says what is allowed and the nearest remedy."""
        if self.version != VERSION:
            raise InvalidInput("version", f"must be {VERSION}, got {self.version}")
        if self.pattern not in PATTERNS:
            raise InvalidInput("pattern", f"must be one of {', '.join(PATTERNS)}, got {self.pattern!r}")
        _require_range("clients", self.clients, 3, MAX_CLIENTS)
        _require("dim", 1 <= self.dim <= MAX_DIM, f"must be from 1 to 2^40, got {self.dim}")
        _require("alpha", 0 < self.alpha_q32 <= 1 << 32, f"must be in (0, 1], got {self.alpha}")
        _require("dropout", 0 <= self.dropout < 0.5, f"must be in [0, 0.5), got {self.dropout}")
        _require("clip", SMALLEST_CLIP <= self.clip <= LARGEST_CLIP, f"must be from 1e-30 to 1e30, got {self.clip}")
        _require("max_weight", 0 <= self.max_weight <= MAX_WEIGHT, f"must be from 0 to 2^40, got {self.max_weight}")
        _require_range("colluders", self.colluders, 0, (self.clients - 1) // 2)
        for name in ("session", "roster_digest"):
            _require(name, len(getattr(self, name)) == DIGEST_SIZE, f"must have {DIGEST_SIZE} bytes")
        _require_range("committees", self.committees, 1, self.clients)
        _require_range("pods", self.pods, 1, self.committees)
        _require_range("served", self.served, 1, self.committees)
        self._check_groups()
        _ = self.quantizer, self.digits  # Raise if the word is too short.

    def _check_groups(self) -> None:
        if self.pattern != "committee":
            _require("committees", self.committees == 1, f"must be 1 with {self.pattern}, got {self.committees}")
        sparse = self.neighbours % 2 == 0 and 0 <= self.neighbours < self.clients - 1
        _require("neighbours", sparse, f"must be even and less than clients − 1, got {self.neighbours}")
        if self.neighbours and self.pattern == "committee":
            raise InvalidInput("neighbours", "must not be given with committee, whose pods are complete graphs")
        if self.neighbours and self.authenticated:
            # Tags of all survivors are what proves one view, so everybody must share a secret with everybody.
            raise InvalidInput("neighbours", "must not be given with a roster: authenticated rounds need complete pods")
        smallest = self.smallest_committee
        _require_company(self.clients, self.committees, self.alpha)
        holders = self.holders
        _require(
            "threshold",
            holders // 2 + 1 <= self.threshold <= holders,
            f"must be from {holders // 2 + 1} to {holders} (more than half of a secret's {holders} holders), "
            f"got {self.threshold}",
        )
        _require(
            "min_survivors",
            1 <= self.min_survivors <= smallest,
            f"must be from 1 to {smallest}, the users of the smallest committee, got {self.min_survivors}",
        )
        if self.max_weight and self.pattern == "pairwise":
            raise InvalidInput("max_weight", "must be 0 with pairwise, which has public weights: use committee or full")

    @property
    def alpha(self) -> float:
        """The α that was asked for."""
        return self.alpha_q32 / 2**32

    @property
    def authenticated(self) -> bool:
        """Whether users prove who they are, by the keys of a roster."""
        return any(self.roster_digest)

    @property
    def run(self) -> bytes:
        """What tells this run from all others in derivations: the roster, or the session where there is none."""
        return self.roster_digest if self.authenticated else digest("session", self.session)

    @cached_property
    def sizes(self) -> list[list[int]]:
        """The sizes of the committees, pod by pod."""
        return group_sizes(self.clients, self.committees, self.pods)

    @cached_property
    def structure(self) -> Structure:
        """Sizes and thresholds of all groups: what privacy follows from."""
        return Structure(tuple(map(tuple, self.sizes)), self.min_survivors, self.threshold)

    @property
    def smallest_committee(self) -> int:
        """Users of the smallest committee."""
        return self.clients // self.committees

    @property
    def contributors(self) -> int:
        """The most users that may be in one opened sum."""
        return -(-self.clients // self.committees)

    @property
    def holders(self) -> int:
        """How many users hold a share of one secret in the smallest pod, its owner included."""
        return self.neighbours + 1 if self.neighbours else min(map(sum, self.sizes))

    def threshold_of(self, pod: int) -> int:
        """Return the shares that restore a secret in a pod of this size."""
        return self.threshold if self.neighbours else scaled(self.threshold, pod, self.holders)

    def survivors_of(self, committee: int) -> int:
        """Return the survivors that a committee of this size needs."""
        return scaled(self.min_survivors, committee, self.smallest_committee)

    def groups(self, seed: bytes, structure: Structure, excluded: frozenset[int] = frozenset()) -> Groups:
        """Return pods and committees of these sizes as a public seed draws them."""
        return draw_groups(seed, self.clients, excluded, structure.sizes, self.neighbours or None)

    @property
    def degree(self) -> int:
        """Peers that a user may share a mask with, in `full` and `pairwise`."""
        return self.neighbours or self.clients - 1

    @property
    def selection_probability(self) -> float:
        """The probability that a user sends a given coordinate in a round (p in the paper): the α that is used."""
        if self.pattern == "pairwise":
            return pairwise.selection_probability(self.alpha, self.degree)
        return self.served / self.committees

    @cached_property
    def slices(self) -> Slices:
        """How the coordinates are cut into slices; in `pairwise` every coordinate goes its own way."""
        count = self.dim if self.pattern == "pairwise" else self.committees
        return Slices(self.dim, count, self.served)

    @property
    def word(self) -> Word:
        """The word that values travel in."""
        return Word.of(self.modulus_bits)

    @cached_property
    def quantizer(self) -> Quantizer:
        """The rounding that all users share."""
        return Quantizer.fit(self.word, self.contributors, self.clip)

    @cached_property
    def digits(self) -> Digits:
        """Private integers beside the values of each slice: the weight, and how many values were clipped.

        `pairwise`, with its secret locations, carries neither.
        """
        maxima = (0, 0) if self.pattern == "pairwise" else (self.max_weight, self.slices.length)
        return Digits.fit(self.word, self.contributors, maxima)

    @cached_property
    def width(self) -> int:
        """Words per slice."""
        return self.slices.length + self.digits.total

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        return msgspec.msgpack.encode(self)

    @staticmethod
    def decode(data: bytes) -> Parameters:
        """Read and check parameters that came over the wire."""
        try:
            params = msgspec.msgpack.decode(data, type=Parameters)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise MalformedMessage("the bytes are not parameters of a run") from None
        params.check()
        return params

    @cached_property
    def digest(self) -> bytes:
        """What every epoch, and through it every key, is bound to."""
        return digest("parameters", self.encode())

    def replace(self, **changes: Any) -> Parameters:
        """Return changed, checked parameters."""
        changed = msgspec.structs.replace(self, **changes)
        changed.check()
        return changed


def _structure(
    pattern: str, clients: int, alpha_q32: int, committee_size: int | None, pod_size: int | None
) -> tuple[int, int, int]:
    """Return committees, pods and served slices for what was asked."""
    if pattern != "committee":
        for option, size in (("committee_size", committee_size), ("pod_size", pod_size)):
            _require(option, size is None, f"must not be given with {pattern}, which has one group of all")
        return 1, 1, 1
    if committee_size is not None:
        _require_range("committee_size", committee_size, SMALLEST_COMMITTEE, clients)
    # α was rounded to a multiple of 2^−32, so 1/α is taken as the nearest integer.
    by_alpha = max(1, ((2 << 32) + alpha_q32) // (2 * alpha_q32))
    size = committee_size or max(1, clients // by_alpha)
    if pod_size is not None:
        least = max(size, SMALLEST_COMMITTEE)
        _require(
            "pod_size",
            least <= pod_size <= clients,
            f"must be from {least}, the users of a committee, to {clients}, the clients, got {pod_size}",
        )
    wanted = pod_size or (clients if clients <= USUAL_POD else max(size, USUAL_POD))
    if committee_size is None:
        return by_alpha, min(by_alpha, _nearest(clients, wanted)), 1
    per_pod = wanted // size
    pods = 1 if wanted == clients else _nearest(clients, per_pod * size)
    if clients // (pods * per_pod) < max(size - 1, SMALLEST_COMMITTEE):
        pods = clients // (per_pod * size)  # Nobody should get much smaller committees than were asked for.
    committees = pods * per_pod
    return committees, pods, max(1, (alpha_q32 * committees + (1 << 31)) >> 32)


def _require_company(clients: int, committees: int, alpha: float) -> None:
    """Raise unless every committee has enough users; α is what asks for so many committees."""
    if clients // committees < SMALLEST_COMMITTEE:
        enough = -(-1000 * SMALLEST_COMMITTEE // clients) / 1000
        raise InvalidInput(
            "alpha",
            f"of {alpha:g} gives committees of {clients // committees} among {clients} clients, and the minimum is "
            f"{SMALLEST_COMMITTEE}: use {enough:g} or more",
        )


def _nearest(clients: int, size: int) -> int:
    """Return the number of groups that makes their size nearest to the one wanted; rather larger than smaller."""
    fewer = max(1, clients // size)
    return fewer if clients / fewer - size <= size - clients / (fewer + 1) else fewer + 1


def _even_degree(pattern: str, neighbours: int | None, clients: int) -> int:
    if neighbours is None:
        return 0
    if neighbours < 2:
        raise InvalidInput("neighbours", f"must be at least 2, got {neighbours}")
    degree = neighbours + neighbours % 2
    return 0 if degree >= clients - 1 and pattern != "committee" else degree


def _require(option: str, holds: bool, problem: str) -> None:
    if not holds:
        raise InvalidInput(option, problem)


def _require_range(option: str, value: int, least: int, most: int) -> None:
    _require(option, least <= value <= most, f"must be from {least} to {most}, got {value}")
