"""Which node is which user: a proof speaks of one node, one user, one run, one exchange and one set of keys."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from engines.enrolment import Enrolled, enrol_users
from sparsesecagg.crypto.identity import Roster, RunKeys, RunSecret
from sparsesecagg.crypto.secrets import PrivateKey
from sparsesecagg.engines.flower.seats import Challenge, Claim, Seats, prove
from sparsesecagg.errors import InvalidKey
from sparsesecagg.flower import UnprovenNode

CLAIM = Claim(bytes(range(32)), node=104, user=2, keys=b"public keys")


@pytest.fixture
def users(tmp_path: Path) -> Enrolled:
    return enrol_users(tmp_path, 4)


def key_of(users: Enrolled, user: int) -> PrivateKey:
    return RunKeys(RunSecret(users.run_key(user).read_bytes()), "test").run_key


class TestProofs:
    def test_the_owner_of_the_run_key_can_prove_its_claim(self, users: Enrolled) -> None:
        challenge = Challenge()
        challenge.verify(CLAIM, Roster.load(users.roster), prove(CLAIM, key_of(users, 2), challenge.public))

    @pytest.mark.parametrize(
        "changes",
        [
            {"run": bytes(32)},
            {"node": 105},
            {"keys": b"other keys"},
            {"user": 3},
        ],
        ids=["run", "node", "keys", "user"],
    )
    def test_a_proof_of_one_claim_is_none_of_another(self, users: Enrolled, changes: dict[str, Any]) -> None:
        challenge, other = Challenge(), dataclasses.replace(CLAIM, **changes)
        proof = prove(other, key_of(users, 2), challenge.public)
        with pytest.raises(UnprovenNode, match="does not prove to be user 2"):
            challenge.verify(CLAIM, Roster.load(users.roster), proof)

    def test_it_is_none_for_another_challenge_or_with_another_key(self, users: Enrolled) -> None:
        roster, challenge = Roster.load(users.roster), Challenge()
        for proof in (
            prove(CLAIM, key_of(users, 2), Challenge().public),
            prove(CLAIM, key_of(users, 1), challenge.public),
            b"",
        ):
            with pytest.raises(UnprovenNode):
                challenge.verify(CLAIM, roster, proof)

    @pytest.mark.parametrize("user", [-1, 4])
    def test_nobody_is_a_user_whom_the_roster_does_not_have(self, users: Enrolled, user: int) -> None:
        """Not even under a number that a list would count from its end."""
        challenge, claim = Challenge(), dataclasses.replace(CLAIM, user=user)
        proof = prove(claim, key_of(users, 3), challenge.public)
        with pytest.raises(UnprovenNode, match=f"the roster has no user {user}"):
            challenge.verify(claim, Roster.load(users.roster), proof)

    def test_a_challenge_that_would_make_the_proof_public_is_refused(self, users: Enrolled) -> None:
        with pytest.raises(InvalidKey, match="low-order"):
            prove(CLAIM, key_of(users, 2), bytes(32))


class TestSeats:
    def test_a_user_has_one_node_until_that_is_gone(self) -> None:
        seats = Seats()
        seats.take(2, 104, present={104, 105})
        with pytest.raises(UnprovenNode, match="user 2 of the roster is node 104, which is present"):
            seats.take(2, 105, present={104, 105})
        seats.take(2, 105, present={105})
        assert seats.among({104, 105}) == {2: 105}
        assert seats.user(104) is None

    def test_a_node_has_one_user(self) -> None:
        seats = Seats()
        seats.take(2, 104, present={104})
        seats.take(3, 104, present={104})
        assert seats.among({104}) == {3: 104}
        assert seats.user(104) == 3

    def test_proving_again_changes_nothing(self) -> None:
        seats = Seats()
        for _ in range(2):
            seats.take(2, 104, present={104})
        assert seats.among({104, 105}) == {2: 104}
        assert seats.among({105}) == {}
