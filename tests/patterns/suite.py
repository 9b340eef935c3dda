"""What every pattern promises to client and server. Each pattern's test file inherits `PatternSuite`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from reference import statistics
from sparsesecagg.crypto.kdf import digest
from sparsesecagg.crypto.secrets import PatternSeed
from sparsesecagg.patterns import PATTERNS, BlockIds, Pattern, PatternSettings
from sparsesecagg.patterns.graphs import share_graph


@dataclass(frozen=True)
class Case:
    """A round as a pattern sees it."""

    clients: int
    dim: int
    alpha: float
    degree: int | None = None
    stripes: int = 4
    missing: tuple[int, ...] = ()
    """Users that advertised keys and dropped out before SHARE_KEYS was over."""

    @property
    def settings(self) -> PatternSettings:
        return PatternSettings(self.clients, self.dim, round(self.alpha * 2**32), self.degree, self.stripes)

    @property
    def members(self) -> list[int]:
        return [user for user in range(self.clients) if user not in self.missing]

    def pattern(self, kind: type[Pattern], seed: bytes = b"\x07" * 32) -> Pattern:
        graph = share_graph(seed, np.arange(self.clients), self.degree)
        return kind(self.settings, np.array(self.members), seed, graph)

    def __str__(self) -> str:
        graph = "complete" if self.degree is None else f"degree {self.degree}"
        return f"{self.clients} users, dim {self.dim}, alpha {self.alpha:.2g}, {graph}, {len(self.missing)} missing"


def pair_seed(one: int, other: int, salt: bytes = b"") -> PatternSeed:
    """The same for both sides of a pair."""
    names = min(one, other).to_bytes(4, "little") + max(one, other).to_bytes(4, "little")
    return PatternSeed(digest("test pair", names, salt))


def shared_with(pattern: Pattern, user: int, peers: Sequence[int], salt: bytes = b"") -> dict[int, BlockIds]:
    """What a user masks with each of the peers."""
    blocks = pattern.shared(user, peers, [pair_seed(user, peer, salt) for peer in peers])
    return dict(zip(peers, blocks, strict=True))


def numbers(pattern: Pattern, blocks: BlockIds) -> list[int]:
    """Block numbers, also where all are meant."""
    return np.arange(pattern.layout.blocks)[blocks].tolist()


def sent_by(pattern: Pattern, user: int, salt: bytes = b"") -> list[int]:
    """The blocks that a user sends."""
    shared = list(shared_with(pattern, user, pattern.peers(user), salt).values())
    return numbers(pattern, pattern.selected(user, shared))


def senders_of(pattern: Pattern, members: Sequence[int]) -> NDArray[np.bool_]:
    """Table of users and blocks: who sends what."""
    table = np.zeros((pattern.settings.clients, pattern.layout.blocks), np.bool_)
    for user in members:
        table[user, sent_by(pattern, user)] = True
    return table


class PatternSuite:
    """Inherit, name the pattern, and give the cases it must stand."""

    kind: ClassVar[type[Pattern]]
    cases: ClassVar[list[Case]]

    @pytest.fixture
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param

    @pytest.fixture
    def pattern(self, case: Case) -> Pattern:
        return case.pattern(self.kind)

    # Who masks with whom

    def test_it_is_known_by_its_name(self, case: Case) -> None:
        assert PATTERNS[self.kind.name] is self.kind

    def test_peers_are_other_members_in_order(self, case: Case, pattern: Pattern) -> None:
        for user in case.members:
            peers = pattern.peers(user)
            assert peers == sorted(set(peers) & set(case.members) - {user})
            assert all(type(peer) is int for peer in peers)

    def test_being_a_peer_is_mutual(self, case: Case, pattern: Pattern) -> None:
        """A mask that only one side adds would never cancel."""
        pairs = {(user, peer) for user in case.members for peer in pattern.peers(user)}
        assert pairs == {(peer, user) for user, peer in pairs}
        assert pairs

    def test_both_sides_of_a_pair_mask_the_same_blocks(self, case: Case, pattern: Pattern) -> None:
        shared = {user: shared_with(pattern, user, pattern.peers(user)) for user in case.members}
        for user in case.members:
            for peer, blocks in shared[user].items():
                assert numbers(pattern, blocks) == numbers(pattern, shared[peer][user])

    def test_the_server_may_ask_for_single_pairs(self, case: Case, pattern: Pattern) -> None:
        """It restores the masks of a dropped user with some of its peers only, in any order."""
        user = case.members[-1]
        every = shared_with(pattern, user, pattern.peers(user))
        some = shared_with(pattern, user, pattern.peers(user)[::-2])
        assert all(numbers(pattern, some[peer]) == numbers(pattern, every[peer]) for peer in some)
        assert some
        assert pattern.shared(user, [], []) == []

    def test_shared_blocks_are_sorted_and_exist(self, case: Case, pattern: Pattern) -> None:
        for user in case.members:
            for blocks in shared_with(pattern, user, pattern.peers(user)).values():
                named = numbers(pattern, blocks)
                assert named == sorted(set(named))

    # Who sends what

    def test_masked_blocks_are_sent(self, case: Case, pattern: Pattern) -> None:
        for user in case.members:
            shared = shared_with(pattern, user, pattern.peers(user))
            sent = numbers(pattern, pattern.selected(user, list(shared.values())))
            assert sent == sorted(set(sent))
            assert all(set(numbers(pattern, blocks)) <= set(sent) for blocks in shared.values())

    def test_nobody_sends_a_block_without_a_mask_shared_with_a_peer(self, case: Case, pattern: Pattern) -> None:
        for user in case.members:
            shared = shared_with(pattern, user, pattern.peers(user))
            sent = numbers(pattern, pattern.selected(user, list(shared.values())))
            assert set(sent) == {block for blocks in shared.values() for block in numbers(pattern, blocks)}

    def test_no_block_has_more_contributors_than_the_headroom_allows(self, case: Case, pattern: Pattern) -> None:
        assert senders_of(pattern, case.members).sum(axis=0).max() <= self.kind.contributors(case.settings)

    def test_users_send_the_fraction_that_the_pattern_claims(self, case: Case) -> None:
        """Over many rounds; error rate 1e-6."""
        full = replace(case, missing=())
        claimed = self.kind.selection_probability(full.settings)
        rounds = [f"round {number}".encode().ljust(32) for number in range(30)]
        sent = [len(sent_by(full.pattern(self.kind, seed), 0, seed)) for seed in rounds]
        blocks = self.kind.make_layout(full.settings).blocks
        total = len(rounds) * blocks
        deviation = np.sqrt(total * claimed * (1 - claimed))
        statistics.assert_mean(sum(sent), claimed * total, deviation + 1e-6)

    def test_survivors_are_counted_per_block_if_the_pattern_is_public(self, case: Case, pattern: Pattern) -> None:
        survivors = np.array(case.members[1::2])
        counts = pattern.survivors_per_block(survivors)
        if self.kind.public:
            assert counts is not None
            assert counts.tolist() == senders_of(pattern, survivors.tolist()).sum(axis=0).tolist()
        else:
            assert counts is None

    # What it depends on

    def test_everybody_derives_the_same(self, case: Case, pattern: Pattern) -> None:
        again = case.pattern(self.kind)
        for user in case.members:
            assert pattern.peers(user) == again.peers(user)
            assert sent_by(pattern, user) == sent_by(again, user)

    def test_the_layout_covers_the_model_and_needs_the_settings_only(self, case: Case, pattern: Pattern) -> None:
        layout = self.kind.make_layout(case.settings)
        assert layout == pattern.layout
        assert layout.dim == case.dim
        assert layout.blocks * layout.length >= case.dim

    def test_a_public_pattern_needs_no_pattern_seeds(self, case: Case, pattern: Pattern) -> None:
        """Nothing of it may depend on what only a pair knows."""
        user = case.members[0]
        peers = pattern.peers(user)
        with_seeds = [shared_with(pattern, user, peers, salt) for salt in (b"one", b"other")]
        same = [numbers(pattern, with_seeds[0][peer]) == numbers(pattern, with_seeds[1][peer]) for peer in peers]
        assert all(same) if self.kind.public else not all(same)
