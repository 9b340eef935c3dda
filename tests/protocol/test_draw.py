"""Draws: what everybody checks, and what a lying server or a colluding juror can't get past those checks."""

from __future__ import annotations

import hashlib
from itertools import combinations

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
    SIZE,
    Hall,
    ask_for,
    hold_draw,
    honest_proof,
    jurors,
    people,
    planned_for,
    prove,
    reveal_of,
    sign_anything,
    users,
)
from sparsesecagg.crypto.chain import require_nonce
from sparsesecagg.crypto.identity import Identity, IdentityKey, Roster, RunSecret, enrol
from sparsesecagg.errors import InvalidDraw, InvalidInput, InvalidKey, MalformedMessage, ProtocolError
from sparsesecagg.protocol.draw import Statement, jury, named_needed, verify_draw
from sparsesecagg.protocol.draw_messages import REVEAL_SIZE, DrawProof, decode_draw, encode_draw
from sparsesecagg.protocol.draw_server import DrawServer
from sparsesecagg.protocol.draws import drawn_groups
from sparsesecagg.protocol.juror import JurorState, answer_draw
from sparsesecagg.protocol.messages import decode_users
from sparsesecagg.protocol.parameters import Parameters


def hashed(label: str, *parts: bytes) -> bytes:
    """The package's digest, written out."""
    pieces = (b"sparsesecagg/v2/" + label.encode(), *parts)
    return hashlib.sha256(b"".join(len(piece).to_bytes(8, "little") + piece for piece in pieces)).digest()


def outcome(proof: DrawProof) -> bytes | None:
    """The seed that a client takes from a proof; None if it refuses."""
    try:
        return verify_draw(ROSTER, PARAMS, proof).seed
    except InvalidDraw:
        return None


# What a draw is


def test_the_jury_is_the_start_of_a_hashed_order_of_the_whole_roster() -> None:
    order = sorted(EVERYBODY, key=lambda user: hashed("jury", ROSTER.digest, b"\x03", user.to_bytes(4, "little")))
    assert list(jurors(3)) == order[: 2 * COLLUDERS + 1]
    assert len({jurors(draw) for draw in range(1, 17)}) == 16


@pytest.mark.parametrize(("size", "needed"), [(1, 1), (3, 3), (5, 4), (7, 6), (11, 9), (21, 16), (127, 96)])
def test_three_quarters_of_a_jury_must_be_named(size: int, needed: int) -> None:
    assert named_needed(size) == needed


def test_two_named_sets_share_more_jurors_than_collude() -> None:
    """The smallest overlap of two sets of the needed size, against the most colluders that a jury is allowed."""
    assert all(2 * named_needed(size) - size > (size - 1) // 2 for size in range(1, 1_000, 2))


def test_the_seed_is_the_hash_of_the_statement_and_all_nonces_in_order() -> None:
    proof = honest_proof(4)
    statement = hashed(
        "draw statement", ROSTER.digest, PARAMS.digest, bytes([4]), users(EVERYBODY), users(jurors(4)[:NEEDED])
    )
    nonces = [people()[user].reveal(4) for user in sorted(jurors(4)[:NEEDED])]
    drawn = verify_draw(ROSTER, PARAMS, proof, last_draw=3)
    assert drawn.seed == hashed("draw", statement, *nonces)
    assert (drawn.number, drawn.population.tolist()) == (4, list(EVERYBODY))


def test_a_draw_with_more_than_the_needed_jurors_or_with_a_fifth_excluded_is_accepted() -> None:
    request, hall = ask_for(1, jurors(1), range(CLIENTS // 5, CLIENTS)), Hall()
    proof = prove(request, [reveal_of(hall.ask(user, request)) for user in sorted(jurors(1))])
    assert verify_draw(ROSTER, PARAMS, proof).population.tolist() == list(range(CLIENTS // 5, CLIENTS))


def test_seeds_differ_with_number_population_and_named_jurors() -> None:
    request, hall = ask_for(1, jurors(1)), Hall()
    everyone = prove(request, [reveal_of(hall.ask(user, request)) for user in sorted(jurors(1))])
    proofs = [honest_proof(1), honest_proof(2), honest_proof(1, range(1, CLIENTS)), everyone]
    assert len({verify_draw(ROSTER, PARAMS, proof).seed for proof in proofs}) == 4


# What is refused


@given(st.data())
def test_a_proof_changed_in_any_bit_is_refused(data: st.DataObject) -> None:
    proof = honest_proof()
    field = data.draw(st.sampled_from(["population", "named", "reveals"]))
    content = bytearray(getattr(proof, field))
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    content[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ProtocolError):
        verify_draw(ROSTER, PARAMS, msgspec.structs.replace(proof, **{field: bytes(content)}))


@pytest.mark.parametrize("size", [0, REVEAL_SIZE - 1, (NEEDED - 1) * REVEAL_SIZE, NEEDED * REVEAL_SIZE + 1])
def test_a_proof_of_another_length_is_refused(size: int) -> None:
    proof = honest_proof()
    reveals = (proof.reveals + bytes(REVEAL_SIZE))[:size]
    with pytest.raises(InvalidDraw, match="reveals take"):
        verify_draw(ROSTER, PARAMS, msgspec.structs.replace(proof, reveals=reveals))


def test_fewer_named_jurors_or_others_than_the_jury_are_refused_though_all_of_them_sign() -> None:
    """Control: the same colluders with the named set of the rules are accepted."""
    stranger = next(user for user in EVERYBODY if user not in jurors(1))
    for named, problem in (
        (jurors(1)[: NEEDED - 1], f"{NEEDED - 1} jurors are named"),
        ((*jurors(1)[:NEEDED], stranger), f"user {stranger} is named and not in the jury"),
        (jurors(1)[:NEEDED], None),
    ):
        request = ask_for(1, named)
        proof = prove(request, [reveal_of(sign_anything(user, request)) for user in sorted(named)])
        if problem is None:
            verify_draw(ROSTER, PARAMS, proof)
        else:
            with pytest.raises(InvalidDraw, match=problem):
                verify_draw(ROSTER, PARAMS, proof)


@pytest.mark.parametrize(("excluded", "accepted"), [(0, True), (12, True), (13, False), (59, False)])
def test_no_more_than_a_fifth_of_the_roster_may_be_left_out_though_all_sign(excluded: int, accepted: bool) -> None:
    request = ask_for(1, population=range(excluded, CLIENTS))
    named = sorted(jurors(1)[:NEEDED])
    proof = prove(request, [reveal_of(sign_anything(user, request)) for user in named])
    assert (outcome(proof) is not None) == accepted


@pytest.mark.parametrize("draw", [0, 17, 255, 256, -1])
def test_there_is_no_draw_17(draw: int) -> None:
    proof = msgspec.structs.replace(honest_proof(16), draw=draw)
    with pytest.raises(InvalidDraw):
        verify_draw(ROSTER, PARAMS, proof, last_draw=-2)
    assert outcome(honest_proof(16)) is not None
    if draw >= 0:
        with pytest.raises(MalformedMessage):
            decode_draw(encode_draw(proof))


def test_the_number_of_colluders_is_the_clients_own() -> None:
    """A server that planned for other numbers has asked another jury, or has had another statement signed."""
    for colluders in (0, COLLUDERS - 1, COLLUDERS + 1):
        with pytest.raises(InvalidDraw):
            verify_draw(ROSTER, planned_for(colluders), honest_proof())
    with pytest.raises(InvalidInput, match="fewer than half"):
        verify_draw(ROSTER, planned_for(CLIENTS // 2), honest_proof())


def test_parameters_can_not_be_chosen_after_the_draw() -> None:
    """They say how the permutation is cut: a server that saw it could look for a cut that gathers its colluders."""
    proof = honest_proof()
    cuts = [msgspec.structs.replace(PARAMS, pattern="committee", committees=number) for number in range(2, 12)]
    for params in cuts:
        with pytest.raises(InvalidDraw, match="not signed"):
            verify_draw(ROSTER, params, proof)
    assert verify_draw(ROSTER, PARAMS, proof).number == 1  # Control


def test_a_juror_signs_one_set_of_parameters_per_number() -> None:
    request, juror = ask_for(1), people()[min(jurors(1)[:NEEDED])]
    state, _ = answer_draw(juror, PARAMS, JurorState(), request)
    with pytest.raises(InvalidDraw, match="signs each number once"):
        answer_draw(juror, msgspec.structs.replace(PARAMS, dim=31), state, request)


def test_a_proof_of_another_roster_is_refused() -> None:
    with pytest.raises(InvalidDraw):
        verify_draw(people("another run")[0].roster, PARAMS, honest_proof())


# Attacks, each with its control


def test_a_server_that_tells_jurors_different_named_sets_gets_no_draw() -> None:
    first, second = ask_for(1, jurors(1)[:NEEDED]), ask_for(1, jurors(1)[SIZE - NEEDED :])
    hall = Hall()
    told = {user: first if place < SIZE // 2 else second for place, user in enumerate(jurors(1))}
    asked = [user for user in jurors(1) if user in decode_users(told[user].named, CLIENTS)]
    answers = {user: reveal_of(hall.ask(user, told[user])) for user in asked}
    for request in (first, second):
        named = decode_users(request.named, CLIENTS).tolist()
        assert outcome(prove(request, [answers.get(user, bytes(REVEAL_SIZE)) for user in named])) is None
        # Asking again for the right set is too late: each juror signs a number once.
        with pytest.raises(InvalidDraw, match="signs each number once"):
            for user in named:
                hall.ask(user, request)

    honest = Hall()
    named = decode_users(first.named, CLIENTS).tolist()
    assert outcome(prove(first, [reveal_of(honest.ask(user, first)) for user in named])) is not None


def outcomes_of_number_one(hall: Hall) -> set[bytes]:
    """All seeds for draw 1 that a server can get, trying one named set after the other."""
    seeds = set()
    for named in combinations(jurors(1), NEEDED):
        request, reveals = ask_for(1, named), []
        for user in sorted(named):
            try:
                reveals.append(reveal_of(hall.ask(user, request)))
            except InvalidDraw:
                break
        seed = outcome(prove(request, reveals))
        seeds |= {seed} if seed else set()
    return seeds


@pytest.mark.parametrize("place", range(0, SIZE, 3))
def test_a_draw_number_has_one_outcome_whatever_the_server_and_its_colluders_try(place: int) -> None:
    colluding = {jurors(1)[(place + step) % SIZE] for step in range(COLLUDERS)}
    assert len(outcomes_of_number_one(Hall(colluding))) == 1


def test_it_has_several_with_more_colluders_than_planned_or_jurors_that_forget() -> None:
    """The control. The second is why a juror that is rolled back, copied or run twice counts as a colluder."""
    assert len(outcomes_of_number_one(Hall(jurors(1)[: COLLUDERS + 3]))) > 1

    class Forgetful(Hall):
        def ask(self, user: int, request: object) -> bytes | None:
            self.states[user] = JurorState()
            return super().ask(user, request)  # type: ignore[arg-type]

    assert len(outcomes_of_number_one(Forgetful())) > 1


def test_another_population_does_not_bring_another_jury_for_the_same_number() -> None:
    """The server chooses the population: were the jury its first users, it could leave out the whole first jury."""
    others = [user for user in EVERYBODY if user not in jurors(1)]
    assert len(others) * 5 >= CLIENTS * 4
    order = jury(ROSTER.digest, 1, CLIENTS, (CLIENTS - 1) // 2)  # As long as a jury can be: most of the order.
    second_jury = [user for user in order if user in others][:SIZE]
    assert (len(second_jury), set(second_jury) & set(jurors(1))) == (SIZE, set())  # Control: a second outcome.
    hall, request = Hall(), ask_for(1, population=others)
    for user in second_jury[:NEEDED]:
        with pytest.raises(InvalidDraw, match="not in the jury"):
            hall.ask(user, ask_for(1, second_jury[:NEEDED], others))
    named = sorted(jurors(1)[:NEEDED])
    assert outcome(prove(request, [reveal_of(hall.ask(user, request)) for user in named])) is not None
    with pytest.raises(InvalidDraw, match="signs each number once"):
        hall.ask(named[0], ask_for(1))


def test_reveals_of_an_earlier_draw_and_of_another_juror_do_not_count() -> None:
    hall = Hall(colluding=EVERYBODY)
    both = sorted(set(jurors(1)) & set(jurors(2)))
    old = {user: reveal_of(hall.ask(user, ask_for(1, jurors(1)))) for user in both}
    named = [*both, *(user for user in jurors(2) if user not in both)][:NEEDED]
    request = ask_for(2, named)
    good = {user: reveal_of(hall.ask(user, request)) for user in sorted(named)}
    assert both
    assert outcome(prove(request, good.values())) is not None
    replayed = {**good, both[0]: old[both[0]]}
    reflected = {**good, named[0]: good[named[1]]}
    swapped_nonce = {**good, both[0]: good[both[0]][:64] + old[both[0]][64:]}
    for reveals in (replayed, reflected, swapped_nonce):
        assert outcome(prove(request, [reveals[user] for user in sorted(named)])) is None


def test_an_old_proof_is_not_accepted_again() -> None:
    proof = honest_proof(2)
    assert verify_draw(ROSTER, PARAMS, proof, last_draw=1).number == 2
    for last_draw in (2, 3, 16):
        with pytest.raises(InvalidDraw, match="numbers only go up"):
            verify_draw(ROSTER, PARAMS, proof, last_draw=last_draw)


def test_a_colluder_that_withholds_its_reveal_burns_one_number_and_is_named_no_more() -> None:
    """All it can do: it knows the seed of a draw before it decides, so it has a choice, once."""
    colluder = jurors(1)[0]
    server, hall = DrawServer(ROSTER, PARAMS), Hall(silent=[colluder])
    proof = hold_draw(server, EVERYBODY, hall.ask)
    assert proof.draw == 2
    assert outcome(proof) is not None
    assert [draw for draw, user in hall.asked if user == colluder] == [1]
    assert hold_draw(DrawServer(ROSTER, PARAMS), EVERYBODY, Hall().ask).draw == 1  # Control


def test_a_colluder_cannot_search_for_a_seed_by_its_nonce() -> None:
    """Control: without the commitment it would find what it likes in a few tries."""
    named, request = sorted(jurors(1)[:NEEDED]), ask_for(1)
    statement = Statement.of(request, ROSTER, PARAMS)
    nonces = {user: people()[user].reveal(1) for user in named}
    colluder = named[-1]
    tries = [number.to_bytes(32, "little") for number in range(500)]
    seeds = [hashed("draw", statement.digest, *({**nonces, colluder: nonce}.values())) for nonce in tries]
    wished = [nonce for nonce, seed in zip(tries, seeds, strict=True) if seed[0] % 16 == 0]
    assert wished
    for nonce in wished:
        signature = people()[colluder].sign(hashed("draw reveal", statement.digest, nonce))
        reveals = {user: reveal_of(sign_anything(user, request)) for user in named} | {colluder: signature + nonce}
        with pytest.raises(InvalidDraw, match=f"juror {colluder} is not the one it committed to"):
            verify_draw(ROSTER, PARAMS, prove(request, reveals.values()))
        with pytest.raises(InvalidKey):
            require_nonce(nonce, 1, ROSTER.run, ROSTER.entries[colluder].chain_tip)


def test_whoever_enters_the_roster_last_gets_no_jury_with_an_honest_minority() -> None:
    """Each entry of its own shuffles the juries anew; it does not know the others' nonces, and a majority stays."""
    colluding = set(range(CLIENTS - COLLUDERS, CLIENTS))
    tried = []
    for attempt in range(40):
        last = enrol(IdentityKey(bytes([9]) * 32), ROSTER.run, RunSecret(attempt.to_bytes(32, "little")))
        roster = Roster(ROSTER.run, (*ROSTER.entries[:-1], last))
        tried += [jury(roster.digest, draw, CLIENTS, COLLUDERS) for draw in range(1, 17)]
    assert len(set(tried)) == len(tried)
    assert max(len(colluding.intersection(each)) for each in tried) < SIZE / 2
    # Control: the same search over juries of three finds one that colluders rule.
    assert max(len(colluding.intersection(each[:3])) for each in tried) >= 2


def test_two_rosters_of_the_same_entries_do_not_get_a_nonce_out_twice() -> None:
    """The memory of a juror belongs to its chain: under a second roster its nonces would be known in advance."""
    secret = RunSecret(b"\x31" * 32)
    mine, another = enrol(IdentityKey(b"\x32" * 32), "twice", secret), IdentityKey(b"\x33" * 32)
    others = (enrol(another, "twice", RunSecret(b"\x34" * 32)), enrol(another, "twice", RunSecret(b"\x35" * 32)))
    first, second = (Roster("twice", (mine, other)) for other in others)
    all_of = b"\x03"
    found = {}
    for roster in (first, second):
        # Planned for no colluder, a jury is one user: find a number for which it is this one.
        found[roster.digest] = {draw for draw in range(1, 17) if jury(roster.digest, draw, 2, 0) == (0,)}
    draw = min(found[first.digest] & found[second.digest])

    def answer(roster: Roster, state: JurorState) -> tuple[JurorState, bytes]:
        request = msgspec.structs.replace(ask_for(draw), roster_digest=roster.digest, population=all_of, named=b"\x01")
        return answer_draw(Identity(0, secret, roster), planned_for(0, roster), state, request)

    state, revealed = answer(first, JurorState())
    with pytest.raises(InvalidDraw, match="signs each number once"):
        answer(second, state)
    _, again = answer(second, JurorState())  # Control: with a memory per roster it comes out again.
    assert reveal_of(revealed)[64:] == reveal_of(again)[64:]


# Messages


def test_messages_come_through_the_wire_as_they_were() -> None:
    request, proof = ask_for(3), honest_proof(3)
    assert decode_draw(encode_draw(request)) == request
    assert decode_draw(encode_draw(proof)) == proof
    answer = sign_anything(7, request)
    assert encode_draw(decode_draw(answer)) == answer


@given(st.binary(max_size=80))
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_draw(data)


@given(st.data())
def test_a_message_changed_or_cut_on_the_way_is_refused(data: st.DataObject) -> None:
    good = encode_draw(honest_proof())
    place = data.draw(st.integers(0, len(good) - 1))
    changed = bytes([*good[:place], good[place] ^ 1, *good[place + 1 :]])
    for bad in (changed, good[:place], good + b"\0"):
        with pytest.raises(MalformedMessage):
            decode_draw(bad)


def test_a_proof_takes_96_bytes_per_named_juror_and_two_sets_of_users() -> None:
    overhead = len(encode_draw(honest_proof())) - NEEDED * REVEAL_SIZE - 2 * ((CLIENTS + 7) // 8)
    assert (REVEAL_SIZE, overhead <= 32) == (96, True)


def test_a_draw_whose_committees_are_larger_than_words_hold_is_refused() -> None:
    """One user excluded, and one pod with one committee takes the place of two: a sum of 59 could wrap around."""
    settings = {"clients": CLIENTS, "dim": 30, "colluders": 0, "roster_digest": ROSTER.digest, "modulus_bits": 8}
    params = Parameters.create(**settings, committees=2, pods=2, served=1)  # type: ignore[arg-type]
    for population, accepted in ((range(CLIENTS), True), (range(1, CLIENTS), False)):
        (juror,) = jury(ROSTER.digest, 1, CLIENTS, 0)
        request = ask_for(1, [juror], population)
        _, answer = answer_draw(people()[juror], params, JurorState(), request)
        proof = encode_draw(prove(request, [reveal_of(answer)]))
        if accepted:
            assert [len(pod) for pod in drawn_groups(params, ROSTER, proof, 0).groups.pods] == [30, 30]
        else:
            with pytest.raises(InvalidDraw, match="committees of 59 are drawn, and words hold the sum of 30"):
                drawn_groups(params, ROSTER, proof, 0)
