"""The server takes each message once, at its stage, from whom it expects it; anything else changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from protocol.rounds import Round, identities, small
from sparsesecagg.errors import (
    DuplicateMessage,
    InvalidKey,
    InvalidShare,
    MalformedMessage,
    ProtocolError,
    ThresholdNotMet,
    UnknownSender,
    WrongRound,
    WrongStage,
    WrongView,
)
from sparsesecagg.protocol import STAGES, Client, Server, Stage
from sparsesecagg.protocol.messages import decode_client_message, encode, user_number


def tampered(data: bytes, **changes: object) -> bytes:
    """Return a message with some fields changed."""
    return encode(msgspec.structs.replace(decode_client_message(data), **changes))


def refused(server: Server, data: bytes, error: type[ProtocolError]) -> None:
    """The message is refused, and the genuine one of the same user is still welcome afterwards."""
    waiting, stage = server.waiting_for, server.stage
    with pytest.raises(error):
        server.receive(data)
    assert (server.waiting_for, server.stage) == (waiting, stage)


@pytest.mark.parametrize("stage", STAGES)
class TestEveryStage:
    def test_a_second_message_is_refused(self, stage: Stage) -> None:
        game = Round(small()).run_to(stage)
        answer = game.answer(0)
        game.server.receive(answer)
        refused(game.server, answer, DuplicateMessage)

    def test_an_unknown_sender_is_refused(self, stage: Stage) -> None:
        game = Round(small()).run_to(stage)
        refused(game.server, tampered(game.answer(0), number=user_number(77)), UnknownSender)

    def test_a_sender_that_is_not_who_the_transport_says_is_refused(self, stage: Stage) -> None:
        game = Round(small()).run_to(stage)
        with pytest.raises(UnknownSender):
            game.server.receive(game.answer(0), sender=1)
        assert 0 in game.server.waiting_for

    def test_a_message_of_another_round_is_refused(self, stage: Stage) -> None:
        game = Round(small()).run_to(stage)
        refused(game.server, tampered(game.answer(0), round_number=2), WrongRound)

    def test_a_message_made_with_other_parameters_is_refused(self, stage: Stage) -> None:
        game = Round(small()).run_to(stage)
        refused(game.server, tampered(game.answer(0), view=bytes(8)), WrongView)

    def test_a_message_of_another_attempt_at_the_same_round_is_refused(self, stage: Stage) -> None:
        """Replaying what a failed attempt has left: the session differs."""
        old = Round(small(session=b"1" * 16)).run_to(stage)
        new = Round(small(session=b"2" * 16)).run_to(stage)
        refused(new.server, old.answer(0), WrongView)

    def test_a_late_message_is_refused(self, stage: Stage) -> None:
        game = Round(small()).run_to(stage)
        late = game.answer(0)
        game.step(silent=[0])
        refused(game.server, late, WrongStage)

    def test_a_user_who_missed_a_stage_is_out(self, stage: Stage) -> None:
        if stage is Stage.UNMASK:
            return
        game = Round(small()).run_to(stage)
        game.step(silent=[0])
        assert 0 not in game.inbox
        answer = tampered(game.answer(1), number=user_number(0))
        refused(game.server, answer, UnknownSender)

    def test_truncated_trailing_and_foreign_bytes_are_refused(self, stage: Stage) -> None:
        game = Round(small()).run_to(stage)
        answer = game.answer(0)
        for broken in (b"", answer[:-1], answer + b"\0", b"\x07" + answer[1:], b"\x01rubbish", answer[:1]):
            refused(game.server, broken, MalformedMessage)

    def test_too_few_users_end_the_round_without_a_result(self, stage: Stage) -> None:
        game = Round(small()).run_to(stage)
        with pytest.raises(ThresholdNotMet) as failure:
            game.step(silent=[0, 1, 2])
        assert (failure.value.survivors, failure.value.needed) == (2, 3)
        assert game.server.result is None
        with pytest.raises(WrongStage):
            game.server.close_stage()

    def test_dropouts_are_counted_where_they_happen(self, stage: Stage) -> None:
        game = Round(small()).run_to(stage)
        game.step(silent=[3])
        game.run_to(Stage.DONE)
        assert game.server.result is not None
        assert game.server.result.dropped == {s.name: int(s is stage) for s in STAGES}


def test_a_public_key_that_occurs_twice_is_refused() -> None:
    game = Round(small())
    first = decode_client_message(game.answer(0))
    game.server.receive(encode(first))
    second = game.answer(1)
    refused(game.server, tampered(second, mask_key=first.sealing_key), InvalidKey)
    refused(game.server, tampered(second, sealing_key=decode_client_message(second).mask_key), InvalidKey)


@pytest.mark.parametrize("field", ["sealing_key", "mask_key"])
def test_a_low_order_key_costs_only_its_owner_the_round(field: str) -> None:
    """Passed on, it would make every neighbour refuse the directory."""
    game = Round(small())
    refused(game.server, tampered(game.answer(0), **{field: bytes(32)}), InvalidKey)
    game.step(silent=[0])
    game.run_to(Stage.DONE)
    assert game.server.result is not None


def test_a_nonce_other_than_the_committed_one_is_refused() -> None:
    game = Round(small()).run_to(Stage.SHARE_KEYS)
    refused(game.server, tampered(game.answer(0), nonce=bytes(16)), InvalidKey)


@pytest.mark.parametrize("wrong", [b"", bytes(88), bytes(88 * 5)])
def test_shares_for_too_few_or_too_many_neighbours_are_refused(wrong: bytes) -> None:
    game = Round(small()).run_to(Stage.SHARE_KEYS)
    refused(game.server, tampered(game.answer(0), shares=wrong), MalformedMessage)


@pytest.mark.parametrize("pattern", ["full", "pairwise", "committee"])
def test_uploads_that_do_not_fit_the_pattern_are_refused(pattern: str) -> None:
    """And nothing of them stays in the sum."""
    game = Round(small(pattern=pattern, alpha=0.6 if pattern == "committee" else 1.0)).run_to(Stage.UPLOAD)
    genuine = game.answer(0)
    upload = decode_client_message(genuine)
    refused(game.server, tampered(genuine, words=memoryview(bytes(upload.words)[:-4])), MalformedMessage)
    refused(game.server, tampered(genuine, words=memoryview(b"\xff" * len(upload.words))), MalformedMessage)
    refused(game.server, tampered(genuine, locations=b"\x00\x01"), MalformedMessage)
    game.server.receive(genuine)
    for user in range(1, 5):
        game.server.receive(game.answer(user))
    game.inbox = game.server.close_stage()
    game.run_to(Stage.DONE)
    assert game.server.result is not None
    if pattern == "full":
        error = np.abs(game.server.result.sum() - np.clip(game.updates, -1, 1).sum(axis=0)).max()
        assert error < 1e-6


def test_shares_of_secrets_that_the_sender_does_not_hold_are_refused() -> None:
    game = Round(small(clients=9, neighbours=4)).run_to(Stage.UNMASK)
    everybody = b"\xff\x01"
    refused(game.server, tampered(game.answer(0), owners=everybody, shares=bytes(36 * 9)), InvalidShare)


def test_a_share_outside_the_field_is_refused() -> None:
    game = Round(small()).run_to(Stage.UNMASK)
    genuine = game.answer(0)
    shares = decode_client_message(genuine).shares
    refused(game.server, tampered(genuine, shares=b"\xff" * len(shares)), InvalidShare)
    refused(game.server, tampered(genuine, shares=shares[:-1]), MalformedMessage)


def test_confirmations_of_the_wrong_length_are_refused() -> None:
    people = identities(5)
    params = small(roster_digest=people[0].roster.digest)
    game = Round(params, identities=people).run_to(Stage.CONFIRM)
    refused(game.server, tampered(game.answer(0), tags=b"short"), MalformedMessage)


def test_uploads_are_added_on_arrival_and_forgotten() -> None:
    """The server's memory does not grow with the number of uploads, except for coded locations."""
    game = Round(small(clients=12, dim=5000)).run_to(Stage.UPLOAD)
    arrays = lambda: sum(v.nbytes for v in vars(game.server._sum).values() if isinstance(v, np.ndarray))  # noqa: E731
    before = arrays()
    assert before
    for user in range(12):
        game.server.receive(game.answer(user))
        assert arrays() == before
    assert not game.server._sum._steps  # type: ignore[union-attr]


def test_messages_of_one_user_have_the_same_size_as_those_of_any_other() -> None:
    """Also beyond user 127, where MessagePack's integers grow."""
    sizes = {len(Client(user, small(clients=300)).advertise_keys()) for user in (0, 127, 128, 255, 256, 299)}
    assert len(sizes) == 1


def test_the_order_of_arrival_does_not_matter() -> None:
    results: list[np.ndarray] = []
    orders: list[Callable[[list[int]], list[int]]] = [list, lambda users: users[::-1]]
    for order in orders:
        game = Round(small(pattern="pairwise"))
        while game.server.stage is not Stage.DONE:
            for user in order(list(game.inbox)):
                game.server.receive(game.answer(user))
            game.inbox = game.server.close_stage()
        assert game.server.result is not None
        results.append(game.server.result.total)
    assert (results[0] == results[1]).all()
