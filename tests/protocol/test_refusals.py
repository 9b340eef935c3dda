"""Clients and server at the edge of what they accept: with one user fewer, one byte more or one lie they refuse."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from protocol.rounds import LENIENT, Round, identities, small
from protocol.test_client import refuses, tampered, users
from protocol.test_server import refused
from protocol.test_server import tampered as tampered_by_user
from reference.x25519 import low_order_points
from sparsesecagg.crypto import sealing
from sparsesecagg.crypto.kdf import digest
from sparsesecagg.errors import (
    InvalidInput,
    InvalidKey,
    InvalidShare,
    MalformedMessage,
    PolicyViolation,
    ThresholdNotMet,
    WrongStage,
)
from sparsesecagg.protocol import Client, Policy, RoundParameters, Server, Stage
from sparsesecagg.protocol.membership import ENTRY_SIZE
from sparsesecagg.protocol.messages import (
    decode_client_message,
    decode_server_message,
    decode_users,
    encode,
    encode_users,
)
from sparsesecagg.protocol.opening import restore_secrets

# Keys


@pytest.mark.parametrize("field", ["sealing_key", "mask_key"])
@pytest.mark.parametrize("point", low_order_points(), ids=bytes.hex)
def test_the_server_refuses_every_low_order_key(field: str, point: bytes) -> None:
    """And takes the genuine keys of the same user afterwards."""
    game = Round(small())
    answer = game.answer(0)
    refused(game.server, tampered_by_user(answer, **{field: point}), InvalidKey)
    assert game.server.receive(answer) == 0


@pytest.mark.parametrize("point", low_order_points(), ids=bytes.hex)
@pytest.mark.parametrize("place", [0, 32], ids=["sealing key", "mask key"])
def test_a_client_refuses_every_low_order_key_of_a_neighbour(place: int, point: bytes) -> None:
    game = Round(small(pattern="pairwise")).run_to(Stage.SHARE_KEYS)
    entries = bytearray(decode_server_message(game.inbox[0]).entries)
    start = 2 * ENTRY_SIZE + place
    entries[start : start + 32] = point
    refuses(game, 0, tampered(game.inbox[0], entries=bytes(entries)), InvalidKey)


def test_each_of_ones_own_keys_is_compared() -> None:
    game = Round(small()).run_to(Stage.SHARE_KEYS)
    entries = decode_server_message(game.inbox[0]).entries
    for place in (0, 32):
        swapped = bytearray(entries)
        swapped[place : place + 32] = bytes(range(32))
        with pytest.raises(InvalidKey, match="other keys for this user"):
            game.clients[0].share_keys(tampered(game.inbox[0], entries=bytes(swapped)))


def test_a_mask_key_that_is_anothers_sealing_key_is_refused_by_everybody() -> None:
    game = Round(small()).run_to(Stage.SHARE_KEYS)
    entries = bytearray(decode_server_message(game.inbox[0]).entries)
    entries[ENTRY_SIZE + 32 : ENTRY_SIZE + 64] = entries[2 * ENTRY_SIZE : 2 * ENTRY_SIZE + 32]
    with pytest.raises(InvalidKey, match="twice"):
        game.clients[0].share_keys(tampered(game.inbox[0], entries=bytes(entries)))


def test_one_key_for_both_purposes_is_refused_by_the_server() -> None:
    game = Round(small())
    answer = game.answer(0)
    refused(game.server, tampered_by_user(answer, mask_key=decode_client_message(answer).sealing_key), InvalidKey)
    game.server.receive(answer)


# Enough users


@pytest.mark.parametrize("clients", [8, 9])
class TestMoreThanHalfOfTheCohort:
    """⌊N/2⌋ + 1 users must be present at every stage, even where a sparse graph has a lower threshold of its own."""

    @pytest.fixture
    def game(self, clients: int) -> Round:
        params = small(clients=clients, neighbours=4)
        assert params.threshold == 3
        return Round(params)

    def test_in_the_key_directory(self, game: Round, clients: int) -> None:
        game.run_to(Stage.SHARE_KEYS)
        entries, enough = decode_server_message(game.inbox[0]).entries, clients // 2 + 1
        few = users(*range(enough - 1), clients=clients)
        with pytest.raises(PolicyViolation, match=f"only {enough - 1} users are present at SHARE_KEYS, {enough} are"):
            game.clients[0].share_keys(tampered(game.inbox[0], users=few, entries=entries[: ENTRY_SIZE * (enough - 1)]))
        just = users(*range(enough), clients=clients)
        game.clients[0].share_keys(tampered(game.inbox[0], users=just, entries=entries[: ENTRY_SIZE * enough]))

    def test_among_the_members(self, game: Round, clients: int) -> None:
        enough = clients // 2 + 1
        game.run_to(Stage.SHARE_KEYS)
        game.step(silent=range(enough - 1, clients))
        with pytest.raises(PolicyViolation, match=f"only {enough - 1} users are present at UPLOAD, {enough} are"):
            game.answer(0)

    def test_among_the_survivors(self, game: Round, clients: int) -> None:
        enough = clients // 2 + 1
        game.run_to(Stage.UNMASK)
        few = tampered(game.inbox[0], survivors=users(*range(enough - 1), clients=clients))
        with pytest.raises(PolicyViolation, match=f"only {enough - 1} users are present at UNMASK, {enough} are"):
            game.clients[0].unmask(few)
        game.clients[0].unmask(tampered(game.inbox[0], survivors=users(*range(enough), clients=clients)))


def test_a_higher_threshold_counts_more_than_half_of_the_cohort() -> None:
    game = Round(small(threshold=5)).run_to(Stage.UNMASK)
    refuses(game, 0, tampered(game.inbox[0], survivors=users(0, 1, 2, 3)), PolicyViolation)
    game.answer(0)


def test_the_clients_own_least_number_of_survivors_counts_at_every_stage() -> None:
    params = small()
    game = Round(params).run_to(Stage.SHARE_KEYS)
    saved = game.clients[0].save()
    message = decode_server_message(game.inbox[0])
    four = tampered(game.inbox[0], users=users(0, 1, 2, 3), entries=message.entries[: 4 * ENTRY_SIZE])
    with pytest.raises(PolicyViolation, match="5 are needed"):
        Client.restore(saved, Policy(min_survivors=5)).share_keys(four)
    Client.restore(saved, Policy(min_survivors=4)).share_keys(four)


def test_a_user_with_fewer_holders_than_the_threshold_gives_away_no_share() -> None:
    """The directory has more than half of the cohort, but fewer users than a secret needs to be restored."""
    game = Round(small(clients=9, neighbours=6, threshold=7)).run_to(Stage.SHARE_KEYS)
    message = decode_server_message(game.inbox[0])
    six = tampered(game.inbox[0], users=users(*range(6), clients=9), entries=message.entries[: 6 * ENTRY_SIZE])
    refuses(game, 0, six, PolicyViolation)
    game.answer(0)


@pytest.mark.parametrize("least", [3, 4])
@pytest.mark.parametrize("from_server", [True, False], ids=["the round's minimum", "the client's own minimum"])
def test_more_than_two_survivors_per_block_can_be_demanded(least: int, from_server: bool) -> None:
    """Committees of four, one of them without one member: three are left, in the other four."""
    params = RoundParameters.create(clients=8, dim=40, alpha=0.5, stripes=1, min_survivors=least if from_server else 1)
    game = Round(params, policy=Policy(min_survivors=1 if from_server else least)).run_to(Stage.UPLOAD)
    assert game.server._members is not None
    committee = game.server._members.pattern.committee(0)  # type: ignore[attr-defined]
    game.step(silent=committee[:1].tolist())
    if least == 3:
        game.run_to(Stage.DONE)
        assert game.server.result is not None
        assert game.server.result.contributors_per_block.min() == 3
        return
    for user in game.inbox:
        with pytest.raises(PolicyViolation, match="with 3 survivors, 4 are the least"):
            game.answer(user)


def test_policy_by_default() -> None:
    policy = Policy()
    assert (policy.min_clients, policy.min_threshold, policy.min_survivors) == (3, 0.5, 2)
    assert not policy.authenticated
    assert policy.patterns == {"full", "pairwise", "committee"}
    assert policy.modulus_bits == {8, 12, 16, 24, 32}
    assert policy.max_exposure == float("inf")


@pytest.mark.parametrize(
    ("passes", "fails"),
    [
        (Policy(min_clients=5), Policy(min_clients=6)),
        (Policy(min_threshold=0.59), Policy(min_threshold=0.6)),
        (Policy(patterns=frozenset({"full"})), Policy(patterns=frozenset({"committee", "pairwise"}))),
        (Policy(modulus_bits=frozenset({32})), Policy(modulus_bits=frozenset({8, 16, 24}))),
        (Policy(authenticated=False), Policy(authenticated=True)),
    ],
    ids=["cohort", "threshold", "pattern", "modulus", "roster"],
)
def test_a_policy_accepts_exactly_what_it_demands(passes: Policy, fails: Policy) -> None:
    """Five users, three of whom restore a secret."""
    Client(0, small(), passes)
    with pytest.raises(PolicyViolation):
        Client(0, small(), fails)


def test_a_policy_that_demands_a_roster_accepts_one() -> None:
    people = identities(5)
    Client(0, small(roster_digest=people[0].roster.digest), Policy(authenticated=True), identity=people[0])


@pytest.mark.parametrize("user", [-1, 5])
def test_a_user_outside_the_cohort_has_no_client(user: int) -> None:
    with pytest.raises(InvalidInput, match="from 0 to 4"):
        Client(user, small())
    Client(4, small())


# Messages of the server


def test_a_set_of_nobody_is_a_set() -> None:
    assert decode_users(bytes(1), 5).tolist() == []
    assert decode_users(b"\x10", 5).tolist() == [4]
    with pytest.raises(MalformedMessage, match="user 5 is not among the 5"):
        decode_users(b"\x20", 5)


def test_a_share_that_does_not_open_is_the_only_one_left_out() -> None:
    game = Round(small()).run_to(Stage.UPLOAD)
    spoilt = bytearray(decode_server_message(game.inbox[0]).shares)
    spoilt[0] ^= 1
    game.inbox[0] = tampered(game.inbox[0], shares=bytes(spoilt))
    game.step()
    message = decode_client_message(game.answer(0))
    assert decode_users(message.owners, 5).tolist() == [0, 2, 3, 4]


def test_sealed_numbers_outside_the_field_are_left_out_as_well() -> None:
    """The owner may seal what it likes: it opens, and still is no share."""
    game = Round(small()).run_to(Stage.UPLOAD)
    owner = game.clients[1]
    key = sealing.sealing_key(owner._state.sealing_agreed[0], owner._directory.digest, 1, 0)
    rubbish = sealing.seal(key, b"\xff" * 72, game.params.round_number, 1, 0)
    shares = decode_server_message(game.inbox[0]).shares
    game.inbox[0] = tampered(game.inbox[0], shares=rubbish + shares[len(rubbish) :])
    game.step()
    message = decode_client_message(game.answer(0))
    assert decode_users(message.owners, 5).tolist() == [0, 2, 3, 4]


def test_a_client_checks_the_parameters_it_is_restored_with() -> None:
    game = Round(small()).run_to(Stage.UPLOAD)
    with pytest.raises(PolicyViolation):
        Client.restore(game.clients[0].save(), Policy(min_clients=6))


def test_a_restored_client_is_at_the_stage_it_was_saved_at() -> None:
    game = Round(small()).run_to(Stage.UPLOAD)
    restored = Client.restore(game.clients[0].save(), LENIENT)
    assert (restored.user, restored.stage) == (0, Stage.UPLOAD)
    with pytest.raises(WrongStage):
        restored.advertise_keys()


def test_a_saved_client_without_a_directory_does_not_upload() -> None:
    """Bytes on disk may be damaged, or of another program."""
    game = Round(small()).run_to(Stage.UPLOAD)
    client = game.clients[0]
    unmasking = Round(small(), seed=3).run_to(Stage.UNMASK)
    for rubbish in (b"", unmasking.inbox[0]):
        client._state = client._state.with_changes(directory=rubbish)
        damaged = Client.restore(client.save(), LENIENT)
        with pytest.raises(MalformedMessage):
            damaged.upload(game.inbox[0], game.updates[0])


@pytest.mark.parametrize("change", [-1, 1, -88, 88])
def test_a_delivery_has_one_sealed_pair_per_neighbour(change: int) -> None:
    game = Round(small()).run_to(Stage.UPLOAD)
    shares = decode_server_message(game.inbox[0]).shares
    wrong = shares[:change] if change < 0 else shares + bytes(change)
    refuses(game, 0, tampered(game.inbox[0], shares=wrong), MalformedMessage)


@pytest.mark.parametrize("change", [-1, 1, -16, 16])
def test_a_delivery_has_one_nonce_per_member(change: int) -> None:
    game = Round(small()).run_to(Stage.UPLOAD)
    nonces = decode_server_message(game.inbox[0]).nonces
    wrong = nonces[:change] if change < 0 else nonces + bytes(change)
    refuses(game, 0, tampered(game.inbox[0], nonces=wrong), MalformedMessage)


def test_the_nonce_of_every_member_is_checked() -> None:
    game = Round(small()).run_to(Stage.UPLOAD)
    for byte in (0, 15, 16, 79):
        nonces = bytearray(decode_server_message(game.inbox[0]).nonces)
        nonces[byte] ^= 1
        refuses(game, 0, tampered(game.inbox[0], nonces=bytes(nonces)), InvalidKey)


def test_a_member_who_is_not_in_the_directory_is_refused() -> None:
    game = Round(small())
    game.step(silent=[4])
    game.run_to(Stage.UPLOAD)
    message = decode_server_message(game.inbox[0])
    added = tampered(
        game.inbox[0], users=users(0, 1, 2, 3, 4), nonces=message.nonces + bytes(16), shares=message.shares + bytes(88)
    )
    refuses(game, 0, added, MalformedMessage)


@pytest.mark.parametrize("change", [-1, 1, -ENTRY_SIZE, ENTRY_SIZE])
def test_a_directory_has_one_entry_per_user(change: int) -> None:
    game = Round(small()).run_to(Stage.SHARE_KEYS)
    entries = decode_server_message(game.inbox[0]).entries
    wrong = entries[:change] if change < 0 else entries + bytes(range(change))
    refuses(game, 0, tampered(game.inbox[0], entries=wrong), MalformedMessage)


# Weights


@pytest.mark.parametrize("weight", [0, 7])
def test_weights_from_zero_to_the_largest_are_taken(weight: int) -> None:
    game = Round(small(max_weight=7)).run_to(Stage.UPLOAD)
    game.clients[0].upload(game.inbox[0], game.updates[0], weight=weight)


@pytest.mark.parametrize("weight", [-1, 8])
def test_weights_beyond_are_refused(weight: int) -> None:
    game = Round(small(max_weight=7)).run_to(Stage.UPLOAD)
    with pytest.raises(InvalidInput, match="weight must be from 0 to 7"):
        game.clients[0].upload(game.inbox[0], game.updates[0], weight=weight)


@pytest.mark.parametrize("weight", [0, 2])
def test_a_round_without_weights_takes_no_other_than_one(weight: int) -> None:
    game = Round(small()).run_to(Stage.UPLOAD)
    with pytest.raises(InvalidInput, match="weight must be 1"):
        game.clients[0].upload(game.inbox[0], game.updates[0], weight=weight)


@pytest.mark.parametrize(("alpha", "weight"), [(1.0, 6), (0.5, 12)])
def test_the_exposure_is_alpha_times_the_weight(alpha: float, weight: int) -> None:
    params = small(clients=8, alpha=alpha, pattern="committee", max_weight=100)
    for limit, refusal in ((6.0, False), (5.99, True)):
        game = Round(params, policy=Policy(min_survivors=1, max_exposure=limit)).run_to(Stage.UPLOAD)
        if refusal:
            with pytest.raises(PolicyViolation):
                game.clients[0].upload(game.inbox[0], game.updates[0], weight=weight)
        else:
            game.clients[0].upload(game.inbox[0], game.updates[0], weight=weight)


# Authenticated rounds


class TestIdentity:
    def test_an_identity_of_another_number_is_refused(self) -> None:
        people = identities(5)
        with pytest.raises(PolicyViolation, match="another number"):
            Client(0, small(roster_digest=people[0].roster.digest), identity=people[1])

    def test_a_roster_of_another_size_is_refused(self) -> None:
        people = identities(6)
        with pytest.raises(PolicyViolation, match="the roster has 6 users, the round 5"):
            Client(0, small(roster_digest=people[0].roster.digest), identity=people[0])

    def test_a_round_without_a_roster_needs_no_identity(self) -> None:
        """And is an ordinary one for whoever has one."""
        game = Round(small(), identities=identities(5)).run_to(Stage.DONE)
        assert game.server.result is not None


class TestConfirmations:
    """Seven users with a roster; five must have confirmed the same survivors."""

    @pytest.fixture
    def game(self) -> Round:
        people = identities(7)
        return Round(small(clients=7, roster_digest=people[0].roster.digest), identities=people).run_to(Stage.UNMASK)

    def confirmed_by(self, game: Round, count: int) -> bytes:
        """Return the request to user 0 with the tags of some others."""
        message = decode_server_message(game.inbox[0])
        confirmers = users(*range(1, count + 1), clients=7)
        return tampered(game.inbox[0], confirmers=confirmers, tags=message.tags[: 16 * count])

    def test_four_others_are_enough_and_three_are_not(self, game: Round) -> None:
        assert game.params.threshold == 5
        refuses(game, 0, self.confirmed_by(game, 3), PolicyViolation)
        game.clients[0].unmask(self.confirmed_by(game, 4))

    def test_a_wrong_tag_among_enough_others_does_no_harm(self, game: Round) -> None:
        tags = bytearray(decode_server_message(game.inbox[0]).tags)
        tags[16] ^= 1
        game.clients[0].unmask(tampered(game.inbox[0], tags=bytes(tags)))

    def test_each_wrong_tag_is_one_less(self, game: Round) -> None:
        tags = bytearray(decode_server_message(self.confirmed_by(game, 4)).tags)
        for place in (0, 17, 63):
            wrong = bytearray(tags)
            wrong[place] ^= 1
            refuses(game, 0, tampered(self.confirmed_by(game, 4), tags=bytes(wrong)), PolicyViolation)

    def test_a_confirmer_who_did_not_survive_is_refused(self) -> None:
        people = identities(7)
        game = Round(small(clients=7, roster_digest=people[0].roster.digest), identities=people).run_to(Stage.UPLOAD)
        game.step(silent=[6])
        game.run_to(Stage.UNMASK)
        message = decode_server_message(game.inbox[0])
        added = tampered(game.inbox[0], confirmers=users(*range(1, 7), clients=7), tags=message.tags + bytes(16))
        refuses(game, 0, added, MalformedMessage)

    def test_one_does_not_confirm_to_oneself(self, game: Round) -> None:
        message = decode_server_message(game.inbox[0])
        instead = tampered(game.inbox[0], confirmers=users(*range(6), clients=7), tags=message.tags)
        refuses(game, 0, instead, MalformedMessage)

    @pytest.mark.parametrize("change", [-16, -1, 1, 16])
    def test_there_is_one_tag_per_confirmer(self, game: Round, change: int) -> None:
        tags = decode_server_message(game.inbox[0]).tags
        wrong = tags[:change] if change < 0 else tags + bytes(change)
        refuses(game, 0, tampered(game.inbox[0], tags=wrong), MalformedMessage)

    @pytest.mark.parametrize("change", [-16, -1, 1, 16])
    def test_the_server_takes_one_tag_per_other_survivor(self, change: int) -> None:
        people = identities(5)
        game = Round(small(roster_digest=people[0].roster.digest), identities=people).run_to(Stage.CONFIRM)
        answer = game.answer(0)
        tags = decode_client_message(answer).tags
        wrong = tags[:change] if change < 0 else tags + bytes(change)
        refused(game.server, tampered_by_user(answer, tags=wrong), MalformedMessage)
        game.server.receive(answer)

    def test_survivors_that_the_policy_refuses_are_not_confirmed(self) -> None:
        people = identities(7)
        game = Round(small(clients=7, roster_digest=people[0].roster.digest), identities=people).run_to(Stage.CONFIRM)
        few = encode_users(np.arange(4), 7)
        refuses(game, 0, tampered(game.inbox[0], survivors=few), PolicyViolation)
        refuses(game, 0, tampered(game.inbox[0], survivors=users(1, 2, 3, 4, 5, 6, clients=7)), PolicyViolation)

    def test_a_round_with_silent_confirmers_ends_with_the_sum(self, game: Round) -> None:
        """Tags are handed out by the place of their receiver, whoever is missing between."""
        people = identities(7)
        params = small(clients=7, roster_digest=people[0].roster.digest)
        for silent_upload, silent_confirm in (([2], []), ([], [0]), ([1], [3]), ([], [2, 5])):
            other = Round(params, identities=people).run_to(Stage.UPLOAD)
            other.step(silent=silent_upload)
            other.step(silent=silent_confirm)
            other.run_to(Stage.DONE)
            assert other.server.result is not None
            assert other.server.result.survivors == tuple(u for u in range(7) if u not in silent_upload)


# The server


class TestUnmaskMessages:
    @pytest.fixture
    def game(self) -> Round:
        return Round(small(clients=9, neighbours=4)).run_to(Stage.UNMASK)

    @pytest.mark.parametrize("change", [-36, -4, -1, 1, 4, 36])
    def test_there_is_one_share_per_owner(self, game: Round, change: int) -> None:
        answer = game.answer(0)
        shares = decode_client_message(answer).shares
        wrong = shares[:change] if change < 0 else shares + bytes(change)
        refused(game.server, tampered_by_user(answer, shares=wrong), MalformedMessage)
        game.server.receive(answer)

    def test_a_user_may_hold_no_share_that_opens(self, game: Round) -> None:
        """Then it sends none, and the others restore the secrets."""
        answer = game.answer(0)
        game.server.receive(tampered_by_user(answer, owners=bytes(2), shares=b""))
        for user in range(1, 9):
            game.server.receive(game.answer(user))
        game.server.close_stage()
        assert game.server.result is not None

    def test_a_single_share_of_somebody_elses_secret_is_refused(self, game: Round) -> None:
        assert game.server._members is not None
        strangers = sorted(set(range(9)) - set(game.server._members.owners(0).tolist()))
        owners = encode_users(np.array(strangers[:1]), 9)
        answer = game.answer(0)
        refused(game.server, tampered_by_user(answer, owners=owners, shares=bytes(36)), InvalidShare)

    def test_the_largest_element_of_the_field_passes_and_the_prime_does_not(self, game: Round) -> None:
        answer = game.answer(0)
        shares = decode_client_message(answer).shares
        prime = (2**31 - 1).to_bytes(4, "little")
        refused(game.server, tampered_by_user(answer, shares=prime + shares[4:]), InvalidShare)
        game.server.receive(tampered_by_user(answer, shares=(2**31 - 2).to_bytes(4, "little") + shares[4:]))


@pytest.mark.parametrize("stage", [Stage.ADVERTISE_KEYS, Stage.SHARE_KEYS, Stage.UPLOAD, Stage.UNMASK])
def test_exactly_the_threshold_is_enough_for_the_server(stage: Stage) -> None:
    game = Round(small()).run_to(stage)
    game.step(silent=[3, 4])
    game.run_to(Stage.DONE)
    assert game.server.result is not None
    one_less = Round(small()).run_to(stage)
    with pytest.raises(ThresholdNotMet):
        one_less.step(silent=[2, 3, 4])
    assert one_less.server.stage is Stage.DONE


def test_a_server_checks_its_parameters() -> None:
    with pytest.raises(InvalidInput):
        Server(msgspec.structs.replace(small(), threshold=2))


def test_a_transport_that_knows_the_sender_is_believed_when_it_agrees() -> None:
    game = Round(small())
    assert game.server.receive(game.answer(3), sender=3) == 3
    assert game.server.waiting_for == {0, 1, 2, 4}


def test_nothing_is_taken_after_the_end() -> None:
    game = Round(small()).run_to(Stage.UNMASK)
    late = game.answer(0)
    game.step(silent=[0])
    assert game.server.stage is Stage.DONE
    with pytest.raises(WrongStage):
        game.server.receive(late)
    with pytest.raises(WrongStage):
        game.server.close_stage()


def test_a_share_outside_the_field_restores_nothing() -> None:
    """Also for whoever restores secrets without a server that has looked at the shares."""
    game = Round(small()).run_to(Stage.UNMASK)
    messages = {user: decode_client_message(game.answer(user)) for user in range(5)}
    members, shared = game.server._members, game.server._shares
    assert members is not None
    assert len(restore_secrets(members, set(range(5)), shared, messages)) == 5
    messages[2] = msgspec.structs.replace(messages[2], shares=b"\xff" * len(messages[2].shares))
    with pytest.raises(InvalidShare, match="outside the field"):
        restore_secrets(members, set(range(5)), shared, messages)


def test_a_user_can_not_commit_to_one_seed_and_share_another() -> None:
    """The sum is not opened with a seed that its owner did not commit to."""
    game = Round(small()).run_to(Stage.SHARE_KEYS)
    for user in range(5):
        answer = game.answer(user)
        if user == 0:
            answer = encode(msgspec.structs.replace(decode_client_message(answer), seed_commitment=digest("other")))
        game.server.receive(answer)
    game.inbox = game.server.close_stage()
    with pytest.raises(InvalidShare, match="user 0"):
        game.run_to(Stage.DONE)
    assert game.server.result is None
