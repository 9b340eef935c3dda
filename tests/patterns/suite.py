"""What every pattern must do: one suite that each of them inherits.

A group is simulated without any protocol: users mask their updates, the server adds them up, takes some out again,
removes the masks that are left, and must have the plain sum of those that are in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sparsesecagg.crypto.secrets import AgreedSecret, SharedSecret
from sparsesecagg.errors import InvalidInput, MalformedMessage
from sparsesecagg.field import Word, pack
from sparsesecagg.patterns.base import ArrayUpdate, GroupSum, Index, Layout, MaskedSum, MaskedUpdate, Pattern
from sparsesecagg.patterns.groups import CircleGraph
from sparsesecagg.patterns.masks import Pair
from sparsesecagg.rounding import Quantizer, Step
from strategies import word_sizes

inherited = settings(suppress_health_check=[HealthCheck.differing_executors], max_examples=60)
"""One test serves several classes; its examples are drawn anew for each."""

SEED, CONTEXT = bytes(range(32)), bytes(range(32, 64))


def make_layout(dim: int, alpha: float = 1.0, *, clients: int = 5, bits: int = 32, **changes: Any) -> Layout:
    """Return the layout of one group that sends without weights."""
    alpha_q32 = max(1, round(alpha * 2**32))
    return msgspec.structs.replace(
        Layout(3, clients, dim, "", alpha_q32, 1, 1, bits, 0, clients, 1.0, 0, 0.0), **changes
    )


def coordinates(indices: Iterable[Index]) -> list[int]:
    """Return what the pieces of an index stand for."""
    return [
        coordinate
        for index in indices
        for coordinate in (range(index.start, index.stop) if isinstance(index, slice) else index.tolist())
    ]


@dataclass
class GroupOfUsers:
    """A group in a round: the server's sum, and what every user put in."""

    pattern: Pattern
    number: int = 0
    round_number: int = 1
    graph: CircleGraph | None = None
    plain: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    sent: dict[int, list[int]] = field(default_factory=dict)
    masked: dict[int, MaskedUpdate] = field(default_factory=dict)
    weights: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        layout = self.pattern.layout
        self.users = range(layout.clients)
        self.graph = self.graph or CircleGraph(np.arange(layout.clients), layout.neighbours or None)
        self.quantizer = Quantizer.fit(layout.word, layout.contributors, 1.0)
        self.server = self.fresh_sum()

    def fresh_sum(self) -> MaskedSum:
        return self.pattern.masked_sum(self.number, self.round_number, SEED, CONTEXT)

    def pair(self, user: int, peer: int) -> Pair:
        both = b"%d %d" % (min(user, peer), max(user, peer))
        return Pair(user, peer, AgreedSecret(sha256(both).digest()))

    def seed(self, user: int) -> SharedSecret:
        return SharedSecret(sha256(b"seed %d" % user).digest()[:16])

    def peers(self, user: int) -> list[int]:
        assert self.graph is not None
        return [int(peer) for peer in self.graph.neighbours(user)]

    def steps(self, user: int, weight: int) -> Sequence[Step]:
        largest = self.pattern.layout.max_weight
        return self.quantizer.steps(weight / largest if largest else 1.0, np.random.default_rng(user))

    def upload(self, user: int, update: Any, weight: int = 1, steps: Sequence[Step] | None = None) -> bytes:
        """Let a user mask its update; note its integers, and return the words as they travel."""
        plain = np.zeros(self.pattern.layout.dim, np.int64)
        sent: list[int] = []

        def trace(index: Index, integers: NDArray[Any]) -> None:
            plain[index] += integers
            sent.extend(coordinates([index]))

        mine = self.fresh_sum()
        source = ArrayUpdate(update) if isinstance(update, np.ndarray) else update
        self.masked[user] = mine.mask(
            source,
            self.steps(user, weight) if steps is None else steps,
            weight,
            [self.pair(user, peer) for peer in self.peers(user)],
            mine.private_mask(user, self.seed(user), positive=True),
            trace,
        )
        self.plain[user], self.sent[user], self.weights[user] = plain, sent, weight
        return bytes(pack(self.masked[user].words, self.pattern.layout.word))

    def add(self, user: int, words: bytes) -> None:
        self.server.add(user, self.masked[user].locations, words)

    def open(self, users: Iterable[int], threads: int = 1) -> GroupSum:
        """Remove the masks that are left when the sum has just these users, all others being members."""
        inside = set(users)
        self.server.open(
            {user: self.seed(user) for user in inside},
            [self.pair(user, peer) for user in inside for peer in self.peers(user) if peer not in inside],
            threads,
        )
        return self.server.result()

    def assert_exact(self, users: Iterable[int], threads: int = 1) -> GroupSum:
        """Open the sum of these users and compare it with the plain one, coordinate by coordinate."""
        inside = sorted(users)
        opened = self.open(inside, threads)
        values = np.zeros(self.pattern.layout.dim, np.int64)
        contributors = np.zeros_like(values)
        for index, some, count in opened.pieces():
            values[index] += some
            contributors[index] += count
        assert values.tolist() == np.sum([self.plain[user] for user in inside], axis=0).tolist()
        counted = np.zeros_like(values)
        for user in inside:
            counted[self.sent[user]] += 1
        assert contributors.tolist() == counted.tolist()
        assert opened.users == tuple(inside)
        assert self.server.problem() == ""
        return opened


def updates(users: int, dim: int, seed: int = 0) -> list[NDArray[np.float32]]:
    """Return updates of which some values lie beyond the clip of 1."""
    return list((np.random.default_rng(seed).standard_normal((users, dim)) / 2).astype(np.float32))


class Counting(Step):
    """A step that notes how it is used."""

    name = "counting"

    def __init__(self, log: list[str], number: int) -> None:
        self.log, self.number = log, number

    def begin(self, pieces: Callable[[], Iterable[NDArray[Any]]]) -> None:
        self.log.append(f"begin {self.number}")

    def apply(self, piece: NDArray[Any]) -> NDArray[Any]:
        self.log.append(f"apply {self.number}")
        self.clipped += len(piece)
        return np.ones(piece.shape, np.int32)


class PatternSuite:
    """Inherit it, name the class and its αs, and the pattern is tested."""

    kind: type[Pattern]
    alphas: tuple[float, ...]
    least_dim = 1
    """Below this, the smallest α is refused."""

    def pattern(self, dim: int, alpha: float | None = None, **changes: Any) -> Pattern:
        return self.kind(make_layout(dim, self.alphas[0] if alpha is None else alpha, **changes))

    # The masks cancel

    @inherited
    @given(st.data())
    def test_the_opened_sum_is_the_plain_sum(self, data: st.DataObject) -> None:
        """Over all words and odd dimensions, with weights, with users who never upload, and with uploads that are
        taken out again."""
        word = data.draw(word_sizes)
        clients = data.draw(st.integers(3, min(7, word.largest)))
        pattern = self.pattern(
            data.draw(st.integers(self.least_dim, self.least_dim + 60)),
            data.draw(st.sampled_from(self.alphas)),
            clients=clients,
            bits=word.bits,
            max_weight=data.draw(st.sampled_from([0, 1, 300])),
        )
        group = GroupOfUsers(pattern, round_number=data.draw(st.integers(1, 1000)))
        uploaded = data.draw(st.lists(st.sampled_from(group.users), min_size=1, unique=True))
        for user in uploaded:
            weight = data.draw(st.integers(0, max(1, pattern.layout.max_weight)))
            group.add(user, group.upload(user, updates(clients, pattern.layout.dim)[user], weight))
        removed = data.draw(st.lists(st.sampled_from(uploaded), max_size=len(uploaded) - 1, unique=True))
        for user in removed:
            group.server.remove(user)
        inside = set(uploaded) - set(removed)
        opened = group.assert_exact(inside)
        if pattern.digits.total:
            clipped = sum(group.masked[user].clipped for user in inside)
            assert opened.clipped == clipped
            weight = sum(group.weights[user] for user in inside)
            assert opened.weight == (weight if pattern.layout.max_weight else None)
        else:
            assert (opened.weight, opened.clipped) == (None, None)

    @pytest.mark.parametrize(("bits", "threads"), [(8, 1), (12, 1), (32, 1), (32, 3)])
    def test_models_of_many_pieces_are_summed_without_a_seam(self, bits: int, threads: int) -> None:
        dim = 150_001
        group = GroupOfUsers(self.pattern(dim, self.alphas[-1], clients=4, bits=bits))
        for user, update in enumerate(updates(4, dim)):
            group.add(user, group.upload(user, update))
        group.server.remove(2)
        group.assert_exact({0, 1, 3}, threads)

    def test_sparse_graphs_work_too(self) -> None:
        """Masks with the neighbours on a circle only."""
        clients, dim = 9, 2 * self.least_dim + 31
        pattern = self.pattern(dim, clients=clients, neighbours=4)
        group = GroupOfUsers(pattern, graph=CircleGraph(np.random.default_rng(0).permutation(clients), 4))
        for user in range(1, clients):
            group.add(user, group.upload(user, updates(clients, dim)[user]))
        group.server.remove(5)
        group.assert_exact({1, 2, 3, 4, 6, 7, 8})

    def test_masks_hide_the_update(self) -> None:
        """What a user sends of a vector of zeros looks like anything; each context and each user sends other words."""
        dim = 40 * self.least_dim
        group = GroupOfUsers(self.pattern(dim, bits=8))
        words = [group.upload(user, np.zeros(dim, np.float32)) for user in (0, 1)]
        assert len(set(words[0])) > 10
        assert words[0][:16] != words[1][:16]
        other = replace(group, round_number=2).pattern.masked_sum(0, 1, SEED, CONTEXT[::-1])
        again = other.mask(
            ArrayUpdate(np.zeros(dim, np.float32)),
            group.steps(0, 1),
            1,
            [group.pair(0, peer) for peer in group.peers(0)],
            other.private_mask(0, group.seed(0), positive=True),
        )
        assert bytes(pack(again.words, group.pattern.layout.word))[:16] != words[0][:16]

    # Steps

    def test_every_step_is_applied_in_order_and_what_it_cut_off_is_counted(self) -> None:
        dim = 3 * self.least_dim + 2
        group = GroupOfUsers(self.pattern(dim))
        log: list[str] = []
        steps = [Counting(log, 1), Counting(log, 2)]
        group.upload(0, np.zeros(dim, np.float32), steps=steps)
        applied = [entry for entry in log if entry.startswith("apply")]
        assert applied == ["apply 1", "apply 2"] * (len(applied) // 2)
        assert group.masked[0].clipped == 2 * len(group.sent[0]) > 0
        assert set(group.plain[0].tolist()) <= {0, 1}

    def test_only_what_is_sent_is_read(self) -> None:
        """An update may be computed on demand."""
        dim = 5 * self.least_dim + 3
        seen: set[int] = set()

        class Watched(ArrayUpdate):
            def read(self, start: int, stop: int) -> Any:
                seen.update(range(start, stop))
                return super().read(start, stop)

            def take(self, coordinates: NDArray[np.int64]) -> Any:
                seen.update(coordinates.tolist())
                return super().take(coordinates)

        group = GroupOfUsers(self.pattern(dim))
        group.upload(0, Watched(updates(1, dim)[0]))
        assert seen == set(group.sent[0])

    # What a pattern says of itself

    @inherited
    @given(st.data())
    def test_users_send_increasing_coordinates_that_the_group_may_send(self, data: st.DataObject) -> None:
        dim = data.draw(st.integers(self.least_dim, self.least_dim + 200))
        pattern = self.pattern(dim, data.draw(st.sampled_from(self.alphas)))
        group = GroupOfUsers(pattern, round_number=data.draw(st.integers(1, 10**6)))
        allowed = coordinates(group.server.indices())
        assert allowed == sorted(set(allowed))
        assert not allowed or (allowed[0] >= 0 and allowed[-1] < dim)
        words = group.upload(1, updates(2, dim)[1])
        assert group.sent[1] == sorted(set(group.sent[1]))
        assert set(group.sent[1]) <= set(allowed)
        assert len(group.sent[1]) <= pattern.length
        assert len(group.masked[1].words) == len(group.sent[1]) + pattern.digits.total
        assert len(words) * 8 < len(group.masked[1].words) * pattern.layout.word.bits + 8

    def test_the_size_of_an_upload_is_known_beforehand(self) -> None:
        """Exactly, or within a few percent where the pattern draws it."""
        dim = 20_000
        for alpha in self.alphas:
            for bits in (8, 32):
                group = GroupOfUsers(self.pattern(dim, alpha, bits=bits))
                words = group.upload(0, updates(1, dim)[0])
                assert len(words) + len(group.masked[0].locations) == pytest.approx(
                    group.pattern.upload_size(), rel=0.05
                )

    def test_fraction_and_coverage_are_what_users_send(self) -> None:
        """On average over users and rounds; standard errors are below half a percent."""
        dim, clients = 30_000, 5
        for alpha in self.alphas:
            pattern = self.pattern(dim, alpha, clients=clients)
            sent, covered = [], []
            for number in range(1, 4):
                group = GroupOfUsers(pattern, round_number=number)
                for user in range(clients):
                    group.upload(user, np.zeros(dim, np.float32))
                sent += [len(group.sent[user]) for user in range(clients)]
                covered.append(len(set().union(*group.sent.values())))
            assert np.mean(sent) / dim == pytest.approx(pattern.fraction(), rel=0.03)
            assert np.mean(covered) / dim == pytest.approx(pattern.coverage, rel=0.05)

    # Malformed uploads

    @pytest.mark.parametrize("bits", [5, 8, 32])
    def test_a_malformed_upload_changes_nothing(self, bits: int) -> None:
        dim = 3 * self.least_dim + 40
        group = GroupOfUsers(self.pattern(dim, bits=bits))
        words = {user: group.upload(user, updates(5, dim)[user]) for user in range(5)}
        for user in range(3):
            group.add(user, words[user])
        for locations, wrong in self.malformed(group.masked[3].locations, words[3], group.pattern.layout.word):
            with pytest.raises(MalformedMessage):
                group.server.add(3, locations, wrong)
        group.add(4, words[4])
        group.assert_exact({0, 1, 2, 4})

    def malformed(self, locations: bytes, words: bytes, word: Word) -> list[tuple[bytes, bytes]]:
        """Return uploads that are like a good one, but for something."""
        found = [(locations, words[:-1]), (locations, words + b"\x00"), (locations, b""), (locations + b"\x00", words)]
        if word.bits == 32:
            found.append((locations, word.modulus.to_bytes(4, "little") + words[4:]))
        return found

    # Layouts that can't be

    @pytest.mark.parametrize(("bits", "contributors"), [(4, 8), (8, 128)])
    def test_a_word_too_short_for_the_sum_is_refused(self, bits: int, contributors: int) -> None:
        with pytest.raises(InvalidInput, match="modulus_bits must be at least"):
            self.pattern(1000, bits=bits, clients=contributors)
