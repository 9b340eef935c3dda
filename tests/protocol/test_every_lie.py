"""Every lie of a malicious server in groups of up to six users, and the same lies told to real clients."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest

from protocol.lies import KINDS, Group, Knowledge, outcomes, reachable, smallest_sum, told_sets
from protocol.malicious_server import MaliciousServer
from protocol.rounds import Run, small
from sparsesecagg.errors import PolicyViolation
from sparsesecagg.privacy.anonymity import honest_in_sum
from sparsesecagg.protocol import Parameters, Policy

GROUPS = [
    Group(size, threshold, colluders)
    for size in range(3, 7)
    for threshold in range(1, size + 1)
    for colluders in range(threshold)
]
SAFE = [group for group in GROUPS if group.is_safe]
UNSAFE = [group for group in GROUPS if not group.is_safe]


def name(group: Group) -> str:
    return f"P{group.size} t{group.threshold} c{group.colluders}"


def lies(group: Group) -> int:
    """Count the lies about survivors to the honest users, each of whom has one header."""
    with_needed = [each for each in range(1 << group.honest) if each & 1 and each.bit_count() >= group.needed]
    return int((len(with_needed) + 1) ** group.honest)


class TestModel:
    @pytest.mark.parametrize("group", SAFE, ids=name)
    def test_no_lie_reads_fewer_than_the_bound_nor_two_sums_and_some_lie_reads_as_few(self, group: Group) -> None:
        least, sums, _ = smallest_sum(group)
        assert least == honest_in_sum(group.size, group.threshold, group.colluders, "malicious")
        assert sums == 1

    @pytest.mark.parametrize("group", UNSAFE, ids=name)
    def test_control_with_a_lower_threshold_one_user_is_read(self, group: Group) -> None:
        assert honest_in_sum(group.size, group.threshold, group.colluders, "malicious") == 0
        assert smallest_sum(group)[0] == 1

    @pytest.mark.parametrize("group", SAFE, ids=name)
    def test_nobodys_two_secrets_open(self, group: Group) -> None:
        assert not any(known.seeds & known.masks for known in outcomes(group))

    @pytest.mark.parametrize("group", SAFE, ids=name)
    def test_of_two_headers_one_releases_nothing(self, group: Group) -> None:
        for first in range(1, group.honest):
            both = [reachable(users, group.needed)[-1] for users in (first, group.honest - first)]
            assert min(len(codes) for codes in both) == 1

    @pytest.mark.parametrize("same_header", [1, 2, 3, 4])
    def test_a_server_that_knows_less_reads_nothing_more(self, same_header: int) -> None:
        """So garbled shares, missing uploads and bad key packages of users that collude need not be tried."""
        for kinds in ((), ("member",), ("member with a forged key", "member")):
            users = same_header + len(kinds)
            for seeds, masks in product(range(1 << same_header), range(1 << users)):
                more = Knowledge(same_header, kinds, seeds, masks).sums()
                for user in range(users):
                    for less in ((seeds & ~(1 << user), masks), (seeds, masks & ~(1 << user))):
                        for part in Knowledge(same_header, kinds, *less).sums():
                            inside = [each for each in more if each & part]
                            assert sum(inside) == part, "it falls into parts that can be read too"

    @pytest.mark.slow
    def test_how_many_are_tried(self) -> None:
        """None is sampled: the number of lies about survivors alone, under one header."""
        assert (len(SAFE), len(UNSAFE)) == (31, 21)
        assert sum(lies(group) for group in SAFE) > 2e7
        assert sum(smallest_sum(group)[2] for group in GROUPS) > 20_000


@cache
def parameters(group: Group) -> Parameters:
    return small(clients=group.size, dim=6, threshold=group.threshold, modulus_bits=16, roster=True)


class Told:
    """A lie: who gets another header, what both headers say, and what each holder of the first is told."""

    def __init__(self, group: Group, rng: np.random.Generator) -> None:
        self.group, self.rng = group, rng
        self.same_header = int(rng.integers(group.honest - group.needed + 1, group.honest + 1))
        self.kinds = tuple(sorted(rng.choice(KINDS, group.honest - self.same_header).tolist(), key=KINDS.index))
        self.told: list[set[int]] = []
        for holder in range(group.honest):
            near = range(self.same_header) if holder < self.same_header else range(self.same_header, group.honest)
            self.told.append({holder, *(user for user in near if rng.random() < 0.75)})

    def expected(self) -> tuple[Knowledge, int]:
        """Return what the model says that the server knows, and how many holders release."""
        first, others = range(self.same_header), range(self.same_header, self.group.honest)
        needed = self.group.needed
        releasing = [holder for holder in first if len(self.told[holder]) >= needed]
        assert len(others) < needed, "users of the other header release nothing"
        named = [sum(user in self.told[holder] for holder in releasing) for user in first]
        seeds = sum(1 << user for user in first if named[user] >= needed)
        masks = sum(1 << user for user in first if len(releasing) - named[user] >= needed)
        for user, kind in zip(others, self.kinds, strict=True):
            masks |= (kind != "no member" and len(releasing) >= needed) << user
        return Knowledge(self.same_header, self.kinds, seeds, masks), len(releasing)

    def tell(self) -> MaliciousServer:
        """Tell the lie to real clients. Honest users are the first ones."""
        group, first = self.group, range(self.same_header)
        others = range(self.same_header, group.honest)
        colluding = range(group.honest, group.size)
        server = MaliciousServer(Run(parameters(group), seed=int(self.rng.integers(100))), colluding)
        kind_of = dict(zip(others, self.kinds, strict=True))
        forged = [user for user in others if kind_of[user] == "member with a forged key"]
        named = [user for user in others if kind_of[user] != "no member"]
        for user in first:
            server.show_to(user, [*first, *named, *colluding], forged)
        for user in others:
            server.show_to(user, range(group.size), context=b"another model".ljust(32))
        server.collect_uploads()
        told, garbled = {}, {}
        for holder in range(group.honest):
            survivors = self.told[holder]
            # Whom the holder is not to count is left out, or declared with a garbled tag.
            near = first if holder < self.same_header else others
            bad = {user for user in near if user not in survivors and self.rng.random() < 0.5}
            told[holder], garbled[holder] = {*survivors, *bad, *colluding}, bad
        server.unmask(told, garbled)
        return server


SAMPLE = 6
MODELLED = [group for group in SAFE if group.threshold > group.size // 2 and group.honest > 1]


class TestRealClients:
    """The model is what the code does: the same lies, told to real clients by forged headers and requests."""

    @pytest.mark.parametrize("group", MODELLED, ids=name)
    def test_the_shares_that_are_released_and_the_sums_that_open_are_those_of_the_model(self, group: Group) -> None:
        rng = np.random.default_rng([group.size, group.threshold, group.colluders])
        compared = 0
        while compared < SAMPLE:
            lie = Told(group, rng)
            known, releasing = lie.expected()
            # The clients refuse a header with fewer than t members.
            members = lie.same_header + group.colluders + sum(kind != "no member" for kind in known.kinds)
            if members < group.threshold:
                continue
            compared += 1
            server = lie.tell()
            seeds, masks = server.knowledge()
            assert sum(1 << user for user in seeds) == known.seeds
            assert sum(1 << user for user in masks) == known.masks
            refused = [user for user, refusal in server.refusals.items() if isinstance(refusal, PolicyViolation)]
            assert len([user for user in refused if user < lie.same_header]) == lie.same_header - releasing
            # One sum at most, and it is the model's.
            assert server.readable() == {frozenset(users_of(part)) for part in known.sums()}

    @pytest.mark.parametrize("group", MODELLED, ids=name)
    def test_the_smallest_sum_of_the_model_is_read_exactly(self, group: Group) -> None:
        """The bound is tight in the code too."""
        bound = honest_in_sum(group.size, group.threshold, group.colluders, "malicious")
        known = next(
            each
            for each in outcomes(group)
            if each.same_header == group.honest and [part.bit_count() for part in each.sums()] == [bound]
        )
        server = told_the_same_header(group, known)
        assert {len(users) for users in server.readable()} == {bound}

    @pytest.mark.parametrize(
        "group", [group for group in UNSAFE if group.threshold > group.size // 2 and group.honest > 1], ids=name
    )
    def test_control_with_a_lower_threshold_one_user_is_read_exactly(self, group: Group) -> None:
        known = next(
            each
            for each in outcomes(group)
            if each.same_header == group.honest and 1 in [part.bit_count() for part in each.sums()]
        )
        server = told_the_same_header(group, known)
        assert min(len(users) for users in server.readable()) == 1

    @pytest.mark.parametrize("group", [group for group in UNSAFE if group.threshold > group.size // 2], ids=name)
    def test_a_user_with_its_own_policy_takes_no_part_in_such_a_run(self, group: Group) -> None:
        """It counts the users that may collude itself, whatever the parameters say."""
        policy = Policy(colluding=group.colluders / group.size)
        with pytest.raises(PolicyViolation, match="the run keeps 0 honest users in every sum"):
            Run(parameters(group), policy=policy, set_up=False)


def users_of(part: int) -> list[int]:
    return [user for user in range(part.bit_length()) if part >> user & 1]


def told_the_same_header(group: Group, known: Knowledge) -> MaliciousServer:
    """Tell real clients what opens these secrets."""
    told = told_sets(group, known.seeds, known.masks)
    server = MaliciousServer(Run(parameters(group)), range(group.honest, group.size))
    server.collect_uploads()
    server.unmask(
        {holder: {*survivors, *server.colluders} for holder, survivors in enumerate(told) if survivors is not None}
    )
    seeds, masks = server.knowledge()
    assert (sum(1 << user for user in seeds), sum(1 << user for user in masks)) == (known.seeds, known.masks)
    return server
