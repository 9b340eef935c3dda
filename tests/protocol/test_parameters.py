"""Parameters of a run: what follows from what is asked, defaults, limits from both sides, and bytes."""

from __future__ import annotations

import contextlib
import math
import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.rounds import grouped, small
from sparsesecagg.errors import InvalidInput, MalformedMessage, SparseSecAggError
from sparsesecagg.protocol import Parameters
from sparsesecagg.protocol.parameters import MAX_CLIENTS, USUAL_POD, VERSION

ABOVE_ZERO = 2**-40
"""An α so small that it is rounded up to the least there is."""


def create(**settings: object) -> Parameters:
    return Parameters.create(**{"clients": 100, "dim": 1000, **settings})  # type: ignore[arg-type]


class TestStructure:
    @pytest.mark.parametrize(
        ("asked", "committees", "pods", "served"),
        [
            ({}, 1, 1, 1),
            ({"alpha": 0.1}, 10, 1, 1),
            ({"alpha": 0.2}, 5, 1, 1),
            ({"alpha": 0.33}, 3, 1, 1),
            ({"alpha": 0.1, "pod_size": 30}, 10, 3, 1),
            ({"alpha": 0.1, "committee_size": 20}, 5, 1, 1),
            ({"alpha": 0.5, "committee_size": 20}, 5, 1, 3),
            ({"alpha": 0.6, "committee_size": 20, "pod_size": 40}, 4, 2, 2),
            ({"committee_size": 20}, 5, 1, 5),
            ({"alpha": 1.0, "committee_size": 20}, 5, 1, 5),
            ({"committees": 7, "pods": 2, "served": 3}, 7, 2, 3),
            ({"committees": 7}, 7, 1, 1),
            ({"clients": 1000, "alpha": 0.037, "committee_size": 36, "pod_size": 72}, 28, 14, 1),
            ({"clients": 1000, "alpha": 0.1}, 10, 8, 1),
            ({"clients": 300}, 1, 1, 1),
            ({"pattern": "full"}, 1, 1, 1),
            ({"pattern": "pairwise", "alpha": 0.1}, 1, 1, 1),
        ],
    )
    def test_groups_that_follow_from_what_is_asked(
        self, asked: dict[str, object], committees: int, pods: int, served: int
    ) -> None:
        params = create(**asked)
        assert (params.committees, params.pods, params.served) == (committees, pods, served)

    def test_alpha_asked_and_alpha_used(self) -> None:
        params = create(alpha=0.3)
        assert params.alpha == pytest.approx(0.3)
        assert params.selection_probability == 1 / 3
        params = create(alpha=0.09, committee_size=20)
        assert params.alpha == pytest.approx(0.09)
        assert params.selection_probability == 0.2
        params = create(committees=8, served=3)
        assert params.alpha == params.selection_probability == 3 / 8
        assert create().alpha == create().selection_probability == 1
        assert create(pattern="full", alpha=0.1).selection_probability == 1
        paper = create(pattern="pairwise", alpha=0.1)
        assert paper.selection_probability == pytest.approx(1 - (1 - 0.1 / 99) ** 99)
        assert paper.degree == 99

    @settings(max_examples=300)
    @given(st.data())
    def test_whatever_is_asked_gives_groups_of_about_that_size_or_names_the_option(self, data: st.DataObject) -> None:
        clients = data.draw(st.integers(3, 600))
        asked: dict[str, object] = {}
        if data.draw(st.booleans()):
            asked["alpha"] = data.draw(st.floats(0.005, 1))
        if data.draw(st.booleans()):
            asked["committee_size"] = data.draw(st.integers(1, clients + 2))
        if data.draw(st.booleans()):
            asked["pod_size"] = data.draw(st.integers(1, clients + 2))
        try:
            params = create(clients=clients, min_survivors=1, **asked)
        except InvalidInput as problem:
            assert problem.option in asked
            return
        sizes = [size for pod in params.sizes for size in pod]
        assert sum(sizes) == clients
        assert min(sizes) >= 3
        assert max(sizes) - min(sizes) <= 1
        assert (params.smallest_committee, params.contributors) == (min(sizes), max(sizes))
        assert min(map(sum, params.sizes)) == params.holders
        if "committee_size" in asked:
            # Nobody gets a committee much smaller than it was told: the anonymity would be.
            assert min(sizes) >= max(3, int(asked["committee_size"]) - 1)  # type: ignore[call-overload]

    def test_small_cohorts_are_one_pod(self) -> None:
        assert create(clients=USUAL_POD, alpha=0.1).pods == 1
        assert create(clients=4 * USUAL_POD, alpha=0.05).pods == 4
        assert create(clients=4 * USUAL_POD, alpha=0.5).pods == 2, "a pod has a committee at least"

    def test_thresholds_follow_the_size_of_the_group(self) -> None:
        """The same fraction, rounded up."""
        params = create(clients=103, committees=10, pods=3, threshold=20, min_survivors=7)
        pods = [sum(pod) for pod in params.sizes]
        assert params.holders == min(pods) < max(pods)
        assert params.threshold_of(min(pods)) == 20
        for pod in pods:
            assert params.threshold_of(pod) == math.ceil(20 * pod / min(pods))
        assert params.survivors_of(10) == 7
        assert params.survivors_of(11) == 8

    def test_a_sparse_graph_has_one_threshold(self) -> None:
        params = create(pattern="full", neighbours=10)
        assert (params.holders, params.degree, params.threshold_of(100)) == (11, 10, 6)

    def test_groups_come_from_a_seed(self) -> None:
        params = create(committees=10, pods=2)
        groups = params.groups(bytes(32), params.structure)
        assert [len(pod) for pod in groups.pods] == [50, 50]
        smaller = params.groups(bytes(32), params.structure.among(97), frozenset({1, 2, 3}))
        assert sum(len(pod) for pod in smaller.pods) == 97
        assert smaller.pod_of(2) is None

    def test_slices_and_words(self) -> None:
        params = create(committees=10, modulus_bits=8)
        assert (params.slices.count, params.slices.length, params.slices.served) == (10, 100, 1)
        assert params.width == 100 + params.digits.total
        assert params.word.bits == 8
        paper = create(pattern="pairwise")
        assert (paper.slices.count, paper.slices.length, paper.width) == (1000, 1, 1)


class TestDefaults:
    def test_what_a_caller_gets_who_says_nothing(self) -> None:
        params = Parameters.create(clients=10, dim=4)
        chosen = (params.pattern, params.alpha, params.dropout, params.modulus_bits, params.neighbours)
        assert chosen == ("committee", 1.0, 0.0, 32, 0)
        assert (params.threshold, params.min_survivors, params.clip, params.max_weight) == (6, 5, 1.0, 0)
        assert (params.session, params.roster_digest, params.colluders) == (bytes(32), bytes(32), 0)
        assert (params.version, params.confirm, params.authenticated) == (2, False, False)

    def test_with_a_roster(self) -> None:
        """More than two thirds, and the survivors are confirmed."""
        params = Parameters.create(clients=30, dim=4, roster_digest=b"r" * 32)
        assert (params.threshold, params.confirm, params.colluders, params.authenticated) == (21, True, 3, True)
        assert not params.replace(confirm=False).confirm
        assert Parameters.create(clients=30, dim=4, roster_digest=b"r" * 32, confirm=False, colluders=0).colluders == 0

    @pytest.mark.parametrize(("committee", "least"), [(3, 2), (4, 2), (5, 3), (10, 5), (11, 6)])
    def test_half_of_a_committee_must_survive(self, committee: int, least: int) -> None:
        assert create(clients=4 * committee, committees=4).min_survivors == least

    @pytest.mark.parametrize("clients", [3, 4, 5, 10, 99, 100, 101])
    def test_more_than_half_restore_a_secret(self, clients: int) -> None:
        assert small(clients=clients).threshold == clients // 2 + 1
        roster = small(clients=clients, roster_digest=b"r" * 32)
        assert roster.threshold == 2 * clients // 3 + 1

    def test_every_bit_of_the_rosters_digest_makes_a_run_authenticated(self) -> None:
        assert small(roster_digest=bytes(31) + b"\x01").authenticated
        assert small(roster_digest=b"\x80" + bytes(31)).authenticated

    def test_runs_are_told_apart_by_roster_or_session(self) -> None:
        found = {
            small(**settings).run
            for settings in (
                {},
                {"session": b"s" * 32},
                {"roster_digest": b"s" * 32},
                {"roster_digest": b"r" * 32},
            )
        }
        assert len(found) == 4
        assert small(roster_digest=b"r" * 32, session=b"s" * 32).run == small(roster_digest=b"r" * 32).run


class TestLimits:
    """The last value that is allowed, and the first that is not."""

    @pytest.mark.parametrize(
        ("option", "allowed", "refused"),
        [
            ("clients", 3, 2),
            ("clients", MAX_CLIENTS, MAX_CLIENTS + 1),
            ("dim", 1, 0),
            ("dim", 1 << 40, (1 << 40) + 1),
            ("alpha", 1, math.nextafter(1, 2)),
            ("alpha", ABOVE_ZERO, 0),
            ("alpha", 1, math.nan),
            ("dropout", 0, -(2**-60)),
            ("dropout", math.nextafter(0.5, 0), 0.5),
            ("dropout", 0.1, math.nan),
            ("clip", 1e-30, math.nextafter(1e-30, 0)),
            ("clip", 1e30, math.nextafter(1e30, math.inf)),
            ("clip", 1, math.nan),
            ("max_weight", 0, -1),
            ("max_weight", 1 << 40, (1 << 40) + 1),
            ("session", bytes(range(32)), bytes(33)),
            ("session", bytes(range(32)), bytes(31)),
            ("roster_digest", bytes(range(32)), bytes(33)),
            ("roster_digest", bytes(range(32)), bytes(31)),
            ("threshold", 3, 2),
            ("threshold", 5, 6),
            ("min_survivors", 1, 0),
            ("min_survivors", 5, 6),
            ("neighbours", 2, 1),
            ("modulus_bits", 32, 33),
            ("modulus_bits", 4, 3),
            ("pattern", "pairwise", "top-k"),
            ("colluders", 2, 3),
            ("colluders", 0, -1),
        ],
    )
    def test_the_last_value_passes_and_the_next_one_does_not(
        self, option: str, allowed: object, refused: object
    ) -> None:
        small(**{option: allowed})
        with pytest.raises(InvalidInput) as problem:
            small(**{option: refused})
        assert problem.value.option == option
        assert problem.value.problem.startswith("must")

    @pytest.mark.parametrize(
        ("option", "allowed", "refused"),
        [
            ("committees", 5, 6),
            ("committees", 2, 0),
            ("pods", 4, 5),
            ("pods", 1, -1),
            ("served", 4, 5),
            ("served", 1, -1),
            ("min_survivors", 4, 5),
            ("threshold", 5, 4),
            ("threshold", 8, 9),
        ],
    )
    def test_numbers_of_groups(self, option: str, allowed: object, refused: object) -> None:
        """Sixteen users in four committees and two pods."""
        grouped(**{option: allowed})
        with pytest.raises(InvalidInput) as problem:
            grouped(**{option: refused})
        assert problem.value.option == option

    @pytest.mark.parametrize(
        ("asked", "option", "problem"),
        [
            ({"committee_size": 101}, "committee_size", "must be from 3 to 100, got 101"),
            ({"committee_size": 2}, "committee_size", "must be from 3 to 100, got 2"),
            ({"committee_size": 20, "pod_size": 19}, "pod_size", "must be from 20, the users of a committee, to 100"),
            ({"pod_size": 101}, "pod_size", "to 100, the clients, got 101"),
            ({"alpha": 0.1, "pod_size": 9}, "pod_size", "must be from 10, the users of a committee"),
            ({"alpha": 0.02}, "alpha", "gives committees of 2 among 100 clients, and the minimum is 3: use 0.03"),
            ({"clients": 5, "alpha": 0.2}, "alpha", "gives committees of 1 among 5 clients"),
            ({"pattern": "full", "committee_size": 10}, "committee_size", "must not be given with full"),
            ({"pattern": "pairwise", "pod_size": 10}, "pod_size", "must not be given with pairwise"),
            ({"pattern": "full", "committees": 2}, "committees", "must be 1 with full, got 2"),
            ({"neighbours": 4}, "neighbours", "must not be given with committee"),
            ({"pattern": "full", "neighbours": 4, "roster_digest": b"r" * 32}, "neighbours", "complete pods"),
            ({"pattern": "pairwise", "max_weight": 3}, "max_weight", "use committee or full"),
            ({"modulus_bits": 4}, "modulus_bits", "must be at least 8 to hold the sum of 100 contributors"),
            ({"committees": 40}, "committees", "must be from 1 to 33"),
        ],
    )
    def test_what_can_not_be_says_which_option_and_what_would_do(
        self, asked: dict[str, object], option: str, problem: str
    ) -> None:
        with pytest.raises(InvalidInput) as caught:
            create(**asked)
        assert caught.value.option == option
        assert problem in caught.value.problem

    @pytest.mark.parametrize("alpha", ["0.5", [1], 1 + 1j])
    def test_alpha_must_be_a_number(self, alpha: object) -> None:
        with pytest.raises(InvalidInput, match="alpha must be in"):
            small(alpha=alpha)

    def test_the_least_alpha_is_not_rounded_to_nothing(self) -> None:
        assert small(alpha=ABOVE_ZERO).alpha_q32 == 1
        assert small(alpha=1).alpha == 1
        assert small(alpha=0.25).alpha_q32 == 1 << 30

    @pytest.mark.parametrize("clients", [3, 4, 5, 10, 99, 100, 101])
    def test_a_threshold_of_half_the_holders_is_one_too_few(self, clients: int) -> None:
        """⌊P/2⌋ + 1 is the least: two halves of the holders must not restore two different secrets."""
        small(clients=clients, threshold=clients // 2 + 1)
        with pytest.raises(InvalidInput, match=f"from {clients // 2 + 1} to {clients} .more than half"):
            small(clients=clients, threshold=clients // 2)

    def test_a_sparse_graph_counts_its_own_holders(self) -> None:
        small(clients=100, neighbours=10, threshold=11)
        for threshold in (5, 12):
            with pytest.raises(InvalidInput, match="from 6 to 11"):
                small(clients=100, neighbours=10, threshold=threshold)

    def test_a_graph_of_all_but_one_is_sparse_and_one_more_is_complete(self) -> None:
        assert small(clients=9, neighbours=6).neighbours == 6
        assert small(clients=9, neighbours=7).neighbours == 0
        assert small(clients=10, neighbours=7).neighbours == 8
        assert small(clients=10).holders == 10

    @pytest.mark.parametrize(("clients", "enough"), [(6, "0.5"), (7, "0.429"), (9, "0.334"), (100, "0.03")])
    def test_the_remedy_for_a_small_committee_is_an_alpha_that_works(self, clients: int, enough: str) -> None:
        with pytest.raises(InvalidInput, match=re.escape(f"the minimum is 3: use {enough} or more")):
            create(clients=clients, alpha=1 / clients)
        create(clients=clients, alpha=float(enough))

    def test_a_session_need_not_be_given(self) -> None:
        assert small().session == bytes(32)


class TestWire:
    def test_parameters_survive_the_wire(self) -> None:
        params = grouped(clip=0.1, max_weight=77, dropout=0.2)
        assert Parameters.decode(params.encode()) == params
        assert Parameters.decode(params.encode()).digest == params.digest

    def test_every_parameter_is_in_the_digest(self) -> None:
        base = grouped()
        changed = [
            grouped(**changes)
            for changes in (
                {"clients": 17},
                {"dim": 41},
                {"alpha": 0.5},
                {"committees": 3},
                {"pods": 1},
                {"served": 2},
                {"modulus_bits": 16},
                {"threshold": 6},
                {"min_survivors": 3},
                {"confirm": True},
                {"clip": 2.0},
                {"max_weight": 3},
                {"dropout": 0.1},
                {"colluders": 1},
                {"session": b"s" * 32},
                {"roster_digest": b"r" * 32},
            )
        ]
        changed += [small(clients=16), small(clients=16, neighbours=6), small(clients=16, pattern="pairwise")]
        assert len({params.digest for params in [base, *changed]}) == len(changed) + 1

    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("version", VERSION + 1),
            ("version", VERSION - 1),
            ("alpha_q32", 0),
            ("alpha_q32", (1 << 32) + 1),
            ("neighbours", 3),
            ("neighbours", 8),
            ("neighbours", -2),
            ("threshold", 4),
            ("clients", 2),
            ("pattern", ""),
            ("committees", 0),
            ("committees", 2),
            ("pods", 0),
            ("pods", 2),
            ("served", 0),
            ("served", 2),
            ("colluders", 5),
            ("session", b""),
            ("clip", math.inf),
            ("dim", 0),
        ],
    )
    def test_what_only_a_server_can_write_is_refused_as_well(self, option: str, value: object) -> None:
        """`create` would never make these; a client reads them off the wire."""
        forged = msgspec.structs.replace(small(clients=9), **{option: value})
        with pytest.raises(InvalidInput):
            forged.check()
        with pytest.raises(InvalidInput):
            Parameters.decode(forged.encode())
        with pytest.raises(InvalidInput):
            small(clients=9).replace(**{option: value})

    def test_parameters_changed_within_the_limits_are_checked_and_kept(self) -> None:
        changed = small(clients=9).replace(clip=7.0)
        assert (changed.clip, changed.clients) == (7.0, 9)
        assert changed != small(clients=9)

    @given(st.binary(max_size=200))
    def test_rubbish_is_no_parameters(self, data: bytes) -> None:
        with pytest.raises(SparseSecAggError):
            Parameters.decode(data)

    @pytest.mark.parametrize("data", [b"", b"\x00", b"\x91\xa1\xff", small().encode() + b"\x00", small().encode()[:-1]])
    def test_other_bytes_are_no_parameters(self, data: bytes) -> None:
        with pytest.raises(MalformedMessage):
            Parameters.decode(data)

    @given(st.integers(0, 200), st.integers(1, 255))
    def test_a_changed_byte_never_passes_as_the_same_parameters(self, place: int, change: int) -> None:
        params = small()
        data = bytearray(params.encode())
        data[place % len(data)] ^= change
        with contextlib.suppress(MalformedMessage, InvalidInput):
            assert Parameters.decode(bytes(data)) != params

    def test_parameters_are_frozen(self) -> None:
        """They were checked when they were made, and masks are bound to them."""
        with pytest.raises(AttributeError):
            small().threshold = 1  # type: ignore[misc]
