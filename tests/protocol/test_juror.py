"""A juror: one statement per number, numbers only going up, and nothing that the rules of a draw forbid."""

from __future__ import annotations

import msgspec
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
    Hall,
    ask_for,
    is_increasing,
    jurors,
    people,
    planned_for,
    reveal_of,
    users,
)
from sparsesecagg.errors import InvalidDraw, InvalidInput, MalformedMessage
from sparsesecagg.protocol.draw import Statement, require_reveal
from sparsesecagg.protocol.draw_messages import DrawRequest
from sparsesecagg.protocol.juror import JurorState, answer_draw

JUROR = jurors(3)[0]
ME = people()[JUROR]


def test_a_juror_signs_the_statement_and_reveals_its_nonce() -> None:
    request = ask_for(3)
    state, answer = answer_draw(ME, PARAMS, JurorState(), request)
    statement = Statement.of(request, ROSTER, PARAMS)
    assert require_reveal(ROSTER, statement, JUROR, reveal_of(answer)) == ME.reveal(3)
    assert state == JurorState(3, statement.digest, answer)


def test_the_same_request_gets_the_same_bytes_again() -> None:
    """A server that lost the answer, or restarted, may ask again."""
    state, answer = answer_draw(ME, PARAMS, JurorState(), ask_for(3))
    assert answer_draw(ME, PARAMS, state, ask_for(3)) == (state, answer)


def test_its_memory_survives_being_stored() -> None:
    state, answer = answer_draw(ME, PARAMS, JurorState(), ask_for(3))
    restored = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=JurorState)
    assert answer_draw(ME, PARAMS, restored, ask_for(3)) == (state, answer)


@pytest.mark.parametrize(
    "second",
    [ask_for(3, jurors(3)), ask_for(3, (JUROR, *jurors(3)[-NEEDED + 1 :])), ask_for(3, population=range(1, CLIENTS))],
    ids=["more named", "others named", "another population"],
)
def test_a_second_statement_for_the_same_number_is_refused(second: DrawRequest) -> None:
    """Control: it is fine as the first one."""
    state, _ = answer_draw(ME, PARAMS, JurorState(), ask_for(3))
    with pytest.raises(InvalidDraw, match="has answered draw 3, and signs each number once"):
        answer_draw(ME, PARAMS, state, second)
    answer_draw(ME, PARAMS, JurorState(), second)


@given(st.lists(st.integers(1, 16), max_size=12))
def test_numbers_only_go_up(draws: list[int]) -> None:
    hall = Hall()
    answered: list[int] = []
    for draw in draws:
        named = [user for user in jurors(draw) if user != JUROR][: NEEDED - 1]
        request = ask_for(draw, [JUROR, *named])
        highest = max(answered, default=0)
        if JUROR not in jurors(draw) or draw < highest:
            with pytest.raises(InvalidDraw):
                hall.ask(JUROR, request)
        else:
            hall.ask(JUROR, request)
            answered += [draw] if draw > highest else []
    assert is_increasing(answered)
    assert hall.states[JUROR].last_draw == max(answered, default=0)


STRANGER = next(user for user in EVERYBODY if user not in jurors(3))


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (ask_for(3, jurors(3)[: NEEDED - 1]), "8 jurors are named, 9 are needed"),
        (ask_for(3, [*jurors(3)[:NEEDED], STRANGER]), "is named and not in the jury"),
        (ask_for(3, jurors(3)[1 : NEEDED + 1]), "is asked and not named"),
        (ask_for(3, population=range(13, CLIENTS)), "47 of 60 users"),
        (msgspec.structs.replace(ask_for(3), roster_digest=bytes(32)), "another roster"),
        (msgspec.structs.replace(ask_for(3), draw=17), "draws 1 to 16"),
        (msgspec.structs.replace(ask_for(3), draw=0), "draws 1 to 16"),
        (msgspec.structs.replace(ask_for(3), draw=4), "not in the jury"),
    ],
    ids=["few", "stranger", "not me", "population", "roster", "17", "0", "another jury"],
)
def test_what_breaks_the_rules_is_refused_and_nothing_is_signed(request_: DrawRequest, problem: str) -> None:
    """Control: `ask_for(3)`, from which each differs in one point, is answered above."""
    with pytest.raises(InvalidDraw, match=problem):
        answer_draw(ME, PARAMS, JurorState(), request_)


@pytest.mark.parametrize("field", ["population", "named"])
@pytest.mark.parametrize("content", [b"", b"\xff" * 7, users(EVERYBODY) + b"\0", b"\xff" * 8])
def test_sets_of_another_size_are_refused(field: str, content: bytes) -> None:
    with pytest.raises(MalformedMessage):
        answer_draw(ME, PARAMS, JurorState(), msgspec.structs.replace(ask_for(3), **{field: content}))


def test_the_number_of_colluders_is_the_jurors_own() -> None:
    """With fewer colluders the jury would be smaller; a server can't make it so."""
    with pytest.raises(InvalidDraw):
        answer_draw(ME, planned_for(COLLUDERS + 1), JurorState(), ask_for(3))
    with pytest.raises(InvalidInput):
        answer_draw(ME, planned_for(CLIENTS), JurorState(), ask_for(3))


def test_a_later_answer_is_the_only_one_remembered_and_earlier_numbers_stay_refused() -> None:
    both = [user for user in jurors(2) if user in jurors(1)]
    user = both[0]
    hall = Hall()
    hall.ask(user, ask_for(2, jurors(2)))
    with pytest.raises(InvalidDraw, match="has answered draw 2"):
        hall.ask(user, ask_for(1, jurors(1)))
