"""Parameters of a run: what follows from what is asked, defaults, limits from both sides, and bytes."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.rounds import grouped, identities, make, small
from sparsesecagg.errors import InvalidInput, MalformedMessage, SparseSecAggError
from sparsesecagg.protocol import Client, Parameters, RoundOptions, Server
from sparsesecagg.protocol.parameters import MAX_CLIENTS, VERSION, check_kinds


def create(clients: int = 100, dim: int = 1000, **settings: Any) -> Parameters:
    return make(clients, dim, **settings)


class TestGroups:
    @pytest.mark.parametrize(
        ("clients", "asked", "sizes"),
        [
            (3, {}, (3,)),
            (128, {}, (128,)),
            (129, {}, (64, 65)),
            (1000, {}, (100,) * 10),
            (100, {"group_size": 100}, (100,)),
            (100, {"group_size": 50}, (50, 50)),
            (10, {"group_size": 4}, (3, 3, 4)),
            (200, {"pattern": "full", "alpha": 1.0}, (200,)),
            (200, {"pattern": "pairwise", "alpha": 0.1}, (200,)),
            (200, {"neighbours": 10}, (200,)),
        ],
    )
    def test_sizes_that_follow_from_what_is_asked(
        self, clients: int, asked: dict[str, Any], sizes: tuple[int, ...]
    ) -> None:
        params = create(clients, **asked)
        assert params.sizes == sizes
        assert (params.contributors, min(sizes)) == (max(sizes), params.clients // params.groups)

    @settings(max_examples=200)
    @given(st.integers(3, 600), st.one_of(st.none(), st.integers(1, 700)))
    def test_no_group_is_larger_than_asked_nor_smaller_than_three(self, clients: int, size: int | None) -> None:
        try:
            params = create(clients, group_size=size)
        except InvalidInput as problem:
            assert problem.option == "group_size"
            return
        assert sum(params.sizes) == clients
        assert min(params.sizes) >= 3
        assert max(params.sizes) - min(params.sizes) <= 1
        assert size is None or max(params.sizes) <= size

    def test_groups_send_different_slices_unless_they_are_to_be_compared(self) -> None:
        assert (grouped().slices, grouped(same_slices=True).slices) == (2, 1)
        assert (grouped().shape.coverage, grouped(same_slices=True).shape.coverage) == (0.5, 0.25)

    def test_groups_come_from_a_seed(self) -> None:
        params = create(group_size=50)
        assert [len(group) for group in params.draw(bytes(32)).groups] == [50, 50]
        assert params.draw(bytes(32)) == params.draw(bytes(32))

    def test_a_roster_decides_group_size_and_collusion(self) -> None:
        roster = identities(12, 6)[0].roster
        params = Parameters.create(12, 40, RoundOptions(alpha=0.25), roster=roster)
        assert (params.groups, params.colluding, params.run) == (2, 0.1, roster.digest)
        with pytest.raises(InvalidInput, match="group_size must be the roster's 6"):
            Parameters.create(12, 40, RoundOptions(alpha=0.25, group_size=4), roster=roster)
        with pytest.raises(InvalidInput, match="clients must be the roster's 12 users"):
            Parameters.create(11, 40, roster=roster)


class TestDefaults:
    def test_what_a_caller_gets_who_says_nothing(self) -> None:
        params = Parameters.create(10, 4)
        chosen = (params.pattern, params.alpha, params.dropout, params.modulus_bits, params.neighbours)
        assert chosen == ("sliced", 1.0, 0.1, 32, 0)
        assert (params.threshold, params.clip, params.max_weight, params.colluding) == (7, 1.0, 0, 0.0)
        assert (params.version, params.groups, params.slices, params.authenticated) == (3, 1, 1, False)
        assert (params.clip_norm, params.noise_multiplier, params.mechanism) == (0.0, 0.0, None)

    @pytest.mark.parametrize(("clients", "threshold"), [(3, 3), (4, 3), (5, 4), (10, 7), (100, 82)])
    def test_the_threshold_is_as_high_as_dropouts_allow(self, clients: int, threshold: int) -> None:
        assert create(clients, threshold=None).threshold == threshold

    def test_a_sparse_graph_has_a_threshold_of_its_own(self) -> None:
        params = create(neighbours=10)
        assert (params.holders, params.threshold, params.quorum) == (11, 6, 51)
        assert create(pattern="pairwise", alpha=0.1).threshold > 50

    def test_sessions_are_random_and_tell_runs_apart(self) -> None:
        assert Parameters.create(5, 4).session != Parameters.create(5, 4).session
        runs = {small().run, small(session=b"t" * 32).run, small(roster=True).run}
        assert len(runs) == 3
        assert small(roster=True, session=b"t" * 32).run == small(roster=True).run

    def test_how_many_accusers_may_collude(self) -> None:
        assert small().accusers == 1
        assert create(colluding=0.1).accusers == 10
        assert create(group_size=50, colluding=0.1).accusers == 5

    @pytest.mark.parametrize(
        ("asked", "used"), [(0.1, (1, 10)), (0.037, (1, 27)), (0.5, (1, 2)), (1.0, (1, 1)), (0.3, (3, 10))]
    )
    def test_alpha_is_used_within_one_per_cent(self, asked: float, used: tuple[int, int]) -> None:
        params = create(alpha=asked)
        assert params.alpha == pytest.approx(asked)
        assert params.shape.fraction() == used[0] / used[1]
        assert abs(params.shape.fraction() / asked - 1) <= 0.01


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
            ("alpha", 0.5, 0),
            ("alpha", 0.5, -0.1),
            ("alpha", 1, 2),
            ("alpha", 1, math.nan),
            ("dropout", 0, -(2**-60)),
            ("dropout", math.nextafter(0.5, 0), 0.5),
            ("dropout", 0.1, math.nan),
            ("colluding", 0, -0.1),
            ("colluding", 0.4, 0.5),
            ("clip", 1e-30, math.nextafter(1e-30, 0)),
            ("clip", 1e30, math.nextafter(1e30, math.inf)),
            ("clip", 1, math.nan),
            ("max_weight", 0, -1),
            ("max_weight", 1 << 40, (1 << 40) + 1),
            ("session", bytes(range(32)), bytes(33)),
            ("session", bytes(range(32)), bytes(31)),
            ("threshold", 3, 2),
            ("threshold", 5, 6),
            ("neighbours", 2, 1),
            ("modulus_bits", 32, 33),
            ("modulus_bits", 4, 3),
            ("pattern", "pairwise", "top-k"),
            ("group_size", 5, 6),
            ("group_size", 3, 2),
            ("group_size", 5, 4),
        ],
    )
    def test_the_last_value_passes_and_the_next_one_does_not(
        self, option: str, allowed: object, refused: object
    ) -> None:
        base = {"clients": 5} if option != "group_size" else {"clients": 6 if allowed == 3 else 5}
        rest: dict[str, Any] = {} if option in ("clients", "neighbours", "group_size") else {"threshold": 3}
        make(**{"dim": 40, "session": b"s" * 32, **base, **rest, option: allowed})
        with pytest.raises(InvalidInput) as problem:
            make(**{"dim": 40, "session": b"s" * 32, **base, **rest, option: refused})
        assert problem.value.option == option
        assert problem.value.problem.startswith(("must", "of"))

    @pytest.mark.parametrize(
        ("asked", "option", "problem"),
        [
            ({"alpha": 2}, "alpha", "must be in (0, 1], got 2"),
            ({"group_size": 101}, "group_size", "must be from 3 to the 100 clients, got 101"),
            ({"group_size": 2}, "group_size", "must be from 3 to the 100 clients, got 2"),
            ({"clients": 5, "group_size": 3}, "group_size", "of 3 leaves groups of 2 among 5 clients: use at least 5"),
            ({"pattern": "full", "group_size": 10}, "group_size", "must not be given with full"),
            ({"pattern": "pairwise", "group_size": 10}, "group_size", "must not be given with pairwise"),
            ({"pattern": "full", "alpha": 0.5}, "alpha", "must be 1 with full, which sends everything, got 0.5"),
            ({"dim": 9, "alpha": 0.1}, "alpha", "sends 1 of every 10 coordinates, and the model has 9: use 0.1111"),
            ({"neighbours": 4, "group_size": 50}, "neighbours", "must not be given with several groups"),
            ({"neighbours": 4, "roster": True}, "neighbours", "must not be given with a roster"),
            ({"modulus_bits": 4}, "modulus_bits", "must be at least 8 to hold the sum of 100 contributors"),
            ({"alpha": 2**-21, "dim": 1 << 30}, "alpha", "must be at least 2^-20"),
        ],
    )
    def test_what_can_not_be_says_which_option_and_what_would_do(
        self, asked: dict[str, Any], option: str, problem: str
    ) -> None:
        with pytest.raises(InvalidInput) as caught:
            create(**asked)
        assert caught.value.option == option
        assert problem in caught.value.problem

    @pytest.mark.parametrize("alpha", ["0.5", [1], 1 + 1j])
    def test_alpha_must_be_a_number(self, alpha: object) -> None:
        with pytest.raises(InvalidInput, match="alpha must be a number"):
            small(alpha=alpha)

    def test_a_model_of_one_block_is_large_enough(self) -> None:
        assert create(dim=10, alpha=0.1).shape.fraction() == 0.1
        create(dim=9, alpha=0.1111)

    @pytest.mark.parametrize("clients", [3, 4, 5, 10, 99, 100, 101])
    def test_a_threshold_of_half_the_holders_is_one_too_few(self, clients: int) -> None:
        """⌊P/2⌋ + 1 is the least: two halves of the holders must not restore two different secrets."""
        small(clients=clients, threshold=clients // 2 + 1)
        with pytest.raises(InvalidInput, match=f"from {clients // 2 + 1} to {clients} .more than half"):
            small(clients=clients, threshold=clients // 2)

    def test_the_smallest_group_decides_which_thresholds_there_are(self) -> None:
        """One threshold for all of them; it is never lowered."""
        create(clients=11, group_size=6, threshold=5)
        with pytest.raises(InvalidInput, match="from 3 to 5"):
            create(clients=11, group_size=6, threshold=6)

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
                {"clients": 11},
                {"dim": 41},
                {"alpha": 0.5},
                {"group_size": 12, "threshold": 7},
                {"same_slices": True},
                {"modulus_bits": 16},
                {"threshold": 5},
                {"clip": 2.0},
                {"max_weight": 3},
                {"dropout": 0.2},
                {"colluding": 0.1},
                {"session": b"t" * 32},
                {"roster": True},
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
            ("groups", 0),
            ("groups", 4),
            ("slices", 0),
            ("slices", 2),
            ("colluding", 0.5),
            ("colluding", math.nan),
            ("dropout", math.nan),
            ("session", b""),
            ("roster_digest", bytes(31)),
            ("clip", math.inf),
            ("dim", 0),
        ],
    )
    def test_what_only_a_server_can_write_is_refused_as_well(self, option: str, value: object) -> None:
        """`create` would never make these; a client reads them off the wire."""
        forged = msgspec.structs.replace(small(clients=9), **{option: value})
        with pytest.raises(InvalidInput) as problem:
            forged.check()
        assert problem.value.option == option.removesuffix("_q32")
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
    def test_a_changed_byte_never_passes_as_the_same_parameters(self, byte: int, change: int) -> None:
        params = small()
        data = bytearray(params.encode())
        data[byte % len(data)] ^= change
        with contextlib.suppress(MalformedMessage, InvalidInput):
            assert Parameters.decode(bytes(data)) != params

    def test_parameters_are_frozen(self) -> None:
        """They were checked when they were made, and masks are bound to them."""
        with pytest.raises(AttributeError):
            small().threshold = 1  # type: ignore[misc]


@dataclass
class Kinds:
    """Fields of all kinds."""

    first: int = 1
    second: float | None = None
    third: bool = True


def test_every_field_but_those_left_out_must_be_of_its_kind() -> None:
    check_kinds(Kinds())
    check_kinds(Kinds(first="x"), skip=("first",))  # type: ignore[arg-type]
    for wrong, option in (
        (Kinds(first="x", third=3), "third"),  # type: ignore[arg-type]
        (Kinds(first="x", second="y"), "second"),  # type: ignore[arg-type]
        (Kinds(first="x", third=None), "third"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidInput) as caught:
            check_kinds(wrong, skip=("first",))
        assert caught.value.option == option


def test_numbers_of_numpy_become_those_of_python() -> None:
    """Messages, digests and JSON know no others; a function that caches would hand them to later runs."""
    kinds = Kinds(np.int64(3), np.float32(0.5), np.bool_(False))  # type: ignore[arg-type]
    check_kinds(kinds)
    assert [type(value) for value in vars(kinds).values()] == [int, float, bool]
    numbers = np.array([6, 8, 5])
    made = make(numbers[0], numbers[1], threshold=numbers[2])
    assert made.encode() == make(6, 8, threshold=5).encode()
    server, client = Server(made), Client(numbers[2], made)
    server.begin_epoch(numbers[0])
    assert server.handle(5, client.advertise_keys(numbers[0])) == {}
    assert type(client.user) is type(client.epoch_number) is type(server.epoch_number) is int


def test_full_also_goes_by_the_name_of_its_protocol() -> None:
    """As in every command; there is one name on the wire."""
    assert RoundOptions(pattern="secagg") == RoundOptions(pattern="full")
    assert small(pattern="secagg").pattern == "full"


def test_an_alpha_of_zero_is_refused_as_such() -> None:
    with pytest.raises(InvalidInput, match=r"alpha must be in \(0, 1\], got 0"):
        Parameters.create(10, 100, RoundOptions(alpha=0.0))
    with pytest.raises(InvalidInput, match=r"alpha must be in \(0, 1\]"):
        small().replace(alpha_q32=0).check()
