"""The server's side of a draw: names jurors, takes what they reveal, goes on without the silent."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.draws import (
    CLIENTS,
    COLLUDERS,
    EVERYBODY,
    NEEDED,
    PARAMS,
    ROSTER,
    SIZE,
    Hall,
    ask_for,
    hold_draw,
    jurors,
    sign_anything,
)
from sparsesecagg.errors import (
    DrawsExhausted,
    InvalidDraw,
    InvalidInput,
    MalformedMessage,
    TooFewJurors,
    UnknownSender,
    WrongStage,
)
from sparsesecagg.protocol.draw import verify_draw
from sparsesecagg.protocol.draw_messages import encode_draw
from sparsesecagg.protocol.draw_server import DrawServer
from sparsesecagg.protocol.messages import decode_users


@pytest.fixture
def server() -> DrawServer:
    return DrawServer(ROSTER, PARAMS)


def test_as_few_jurors_are_named_as_allowed_the_first_that_are_present(server: DrawServer) -> None:
    """Each named juror must answer, so each is a risk."""
    away = jurors(1)[1]
    request = server.name([user for user in EVERYBODY if user != away])
    assert request == ask_for(1, [user for user in jurors(1) if user != away][:NEEDED])


def test_everybody_accepts_the_proof_of_a_draw_that_all_named_jurors_answered(server: DrawServer) -> None:
    request, hall = server.name(EVERYBODY), Hall()
    for count, user in enumerate(server.missing):
        with pytest.raises(TooFewJurors, match=f"{count} jurors are present, {NEEDED} are needed"):
            server.proof()
        answer = hall.ask(user, request)
        assert answer is not None
        server.receive(answer)
        server.receive(answer)  # Again changes nothing.
    assert server.missing == []
    assert verify_draw(ROSTER, PARAMS, server.proof()).number == 1


def test_with_too_few_jurors_present_nothing_happens_until_more_come_or_the_number_is_skipped(
    server: DrawServer,
) -> None:
    here = jurors(1)[: NEEDED - 1]
    with pytest.raises(TooFewJurors) as caught:
        server.name(here)
    assert (caught.value.draw, caught.value.present, caught.value.needed) == (1, NEEDED - 1, NEEDED)
    assert server.name(jurors(1)).draw == 1
    other = DrawServer(ROSTER, PARAMS)
    other.skip()
    assert other.name(EVERYBODY).draw == 2


def test_silent_jurors_are_named_no_more_also_after_a_restart(server: DrawServer) -> None:
    first = server.name(EVERYBODY)
    silent = server.missing[:2]
    for user in server.missing[2:]:
        server.receive(sign_anything(user, first))
    assert server.give_up() == silent
    for other in (server, DrawServer(ROSTER, PARAMS, last_draw=server.last_draw, silent=server.silent)):
        while other.last_draw < 16:
            request = other.name(EVERYBODY)
            assert not set(silent).intersection(decode_users(request.named, CLIENTS).tolist())
            for user in other.missing:
                other.receive(sign_anything(user, request))
            other.proof()
        with pytest.raises(DrawsExhausted, match="all 16 draws"):
            other.name(EVERYBODY)


def test_numbers_whose_jury_has_too_many_silent_users_are_passed_over() -> None:
    silent = jurors(1)[: SIZE - NEEDED + 1]
    assert DrawServer(ROSTER, PARAMS, silent=silent).name(EVERYBODY).draw > 1
    assert DrawServer(ROSTER, PARAMS, silent=silent[1:]).name(EVERYBODY).draw == 1


def test_many_silent_users_use_up_all_draws() -> None:
    with pytest.raises(DrawsExhausted):
        hold_draw(DrawServer(ROSTER, PARAMS), EVERYBODY, Hall(silent=range(0, CLIENTS, 2)).ask)


@given(st.sets(st.sampled_from(EVERYBODY), max_size=2 * COLLUDERS))
def test_a_draw_succeeds_without_the_silent_or_ends_with_a_reason(silent: set[int]) -> None:
    hall = Hall(silent=silent)
    try:
        proof = hold_draw(DrawServer(ROSTER, PARAMS), EVERYBODY, hall.ask)
    except DrawsExhausted:
        assert len(silent) > COLLUDERS
        return
    assert not silent.intersection(decode_users(proof.named, CLIENTS).tolist())
    assert verify_draw(ROSTER, PARAMS, proof).number == proof.draw
    asked = [user for _, user in hall.asked if user in silent]
    assert len(asked) == len(set(asked))


def test_an_answer_that_is_wrong_leaves_its_sender_missing(server: DrawServer) -> None:
    request = server.name(EVERYBODY)
    user, stranger = server.missing[0], next(user for user in EVERYBODY if user not in jurors(1))
    with pytest.raises(InvalidDraw, match=f"juror {user} has not signed"):
        server.receive(sign_anything(user, ask_for(1, jurors(1))))
    with pytest.raises(UnknownSender):
        server.receive(sign_anything(stranger, request))
    with pytest.raises(WrongStage, match="a message of draw 2"):
        server.receive(sign_anything(user, ask_for(2)))
    with pytest.raises(WrongStage):
        server.receive(encode_draw(request))
    with pytest.raises(MalformedMessage):
        server.receive(b"rubbish")
    assert user in server.missing
    server.receive(sign_anything(user, request))
    assert user not in server.missing


def test_a_wrong_answer_is_as_good_as_silence() -> None:
    liar = jurors(1)[0]
    hall = Hall()
    proof = hold_draw(
        DrawServer(ROSTER, PARAMS),
        EVERYBODY,
        lambda user, request: b"rubbish" if user == liar else hall.ask(user, request),
    )
    assert proof.draw == 2


def test_calls_out_of_turn_are_refused(server: DrawServer) -> None:
    early: list[Callable[[], object]] = [
        server.proof,
        server.give_up,
        lambda: server.receive(sign_anything(1, ask_for(1))),
    ]
    for call in early:
        with pytest.raises(WrongStage):
            call()
    server.name(EVERYBODY)
    late: list[Callable[[], object]] = [lambda: server.name(EVERYBODY), server.skip]
    for call in late:
        with pytest.raises(WrongStage):
            call()
    assert server.last_draw == 1


def test_a_late_answer_to_a_draw_that_was_given_up_does_not_count(server: DrawServer) -> None:
    """A colluder that waits to see the seed can't come back."""
    first = server.name(EVERYBODY)
    late = sign_anything(server.missing[0], first)
    server.give_up()
    with pytest.raises(WrongStage):
        server.receive(late)
    server.silent.clear()
    server.name(EVERYBODY)
    with pytest.raises(WrongStage):
        server.receive(late)


def test_a_population_below_four_fifths_of_the_roster_is_the_callers_mistake() -> None:
    DrawServer(ROSTER, PARAMS, population=np.arange(48))
    with pytest.raises(InvalidInput, match="population must be at least 4/5 of the 60 users, got 47"):
        DrawServer(ROSTER, PARAMS, population=np.arange(47))
