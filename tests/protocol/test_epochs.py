"""Epochs: a new one ends the one before, draws anew, and goes on with rounds and draws where they were."""

from __future__ import annotations

import os

import numpy as np
import pytest

from sparsesecagg.simulate.simulation import make_identities
from sparsesecagg.errors import AlreadyAnswered, InvalidInput, TooFewJurors, WrongRound, WrongStage, WrongView
from sparsesecagg.protocol import Client, MemoryLedger, Parameters, Server, Stage, session_of
from sparsesecagg.protocol.draw import jury

USERS = 6
PEOPLE = make_identities(USERS, "test", os.urandom)
ROSTER = PEOPLE[0].roster
PARAMS = Parameters.create(clients=USERS, dim=12, pattern="full", roster_digest=ROSTER.digest, confirm=False)
UPDATE = np.full(12, 0.25, np.float32)


def new_clients() -> dict[int, Client]:
    return {user: Client(user, PARAMS, identity=PEOPLE[user], ledger=MemoryLedger()) for user in range(USERS)}


def set_up(server: Server, clients: dict[int, Client], epoch: int | None = None) -> dict[int, bytes]:
    for client in clients.values():
        server.receive(client.advertise_keys(epoch))
    messages = server.close_stage()
    while server.stage is Stage.DRAW:
        for user, data in messages.items():
            server.receive(clients[user].reveal(data))
        messages = server.close_stage()
    for user, data in messages.items():
        clients[user].join(data)
        for package in clients[user].share_keys(server.round_number):
            server.receive(package)
    return messages


def play(server: Server, clients: dict[int, Client]) -> None:
    for user, order in server.begin_round().items():
        server.receive(clients[user].upload(order, UPDATE))
        for package in clients[user].share_keys(server.round_number):
            server.receive(package)
    for user, request in server.close_stage().items():
        server.receive(clients[user].unmask(request))
    server.close_stage()


def test_a_second_epoch_draws_again_and_counts_on() -> None:
    server, clients = Server(PARAMS, roster=ROSTER), new_clients()
    set_up(server, clients)
    play(server, clients)
    first = server.groups.pods[0].users.tolist()
    server.begin_epoch()
    set_up(server, clients)
    play(server, clients)
    assert server.round_number == 2
    assert clients[0].seen == (2, 2)
    assert server.result is not None
    np.testing.assert_allclose(server.result.mean(), 0.25, atol=1e-6)
    assert sorted(first) == sorted(server.groups.pods[0].users.tolist())


def test_a_user_that_missed_an_epoch_takes_part_in_the_next() -> None:
    server, clients = Server(PARAMS, roster=ROSTER), new_clients()
    set_up(server, clients)
    server.begin_epoch()
    set_up(server, {user: client for user, client in clients.items() if user != 2})
    server.begin_epoch()
    assert 2 in set_up(server, clients, server.epoch_number)


def test_a_new_epoch_erases_the_packages_of_the_one_before() -> None:
    server, clients = Server(PARAMS, roster=ROSTER), new_clients()
    set_up(server, clients)
    orders = server.begin_round()
    before = list(clients[0]._state.held_secrets())
    clients[0].advertise_keys()
    with pytest.raises(WrongStage):
        clients[0].upload(orders[0], UPDATE)
    assert not any(any(secret.reveal()) for secret in before)


def test_an_epoch_that_is_over_is_not_begun_again() -> None:
    server, clients = Server(PARAMS, roster=ROSTER), new_clients()
    set_up(server, clients)
    with pytest.raises(AlreadyAnswered, match="epoch 1 is over"):
        clients[0].advertise_keys(1)
    with pytest.raises(WrongRound):
        server.begin_epoch(1)


def test_the_same_epoch_keys_again_change_nothing() -> None:
    server, clients = Server(PARAMS, roster=ROSTER), new_clients()
    messages = set_up(server, clients)
    state = clients[0].save()
    clients[0].join(messages[0])
    assert clients[0].save() == state


def test_a_server_that_lost_its_memory_catches_up_with_what_users_have_seen() -> None:
    first, clients = Server(PARAMS, roster=ROSTER), new_clients()
    set_up(first, clients)
    play(first, clients)
    second = Server(PARAMS, roster=ROSTER)
    second.begin_epoch(1_000)
    rounds, draws = zip(*(client.seen for client in clients.values()), strict=True)
    second.catch_up(max(rounds), max(draws))
    set_up(second, clients, 1_000)
    play(second, clients)
    assert second.round_number == 2
    second.begin_round()
    with pytest.raises(WrongStage):
        second.catch_up(9)


def test_a_new_epoch_may_have_other_parameters_of_the_same_run_only() -> None:
    server, clients = Server(PARAMS, roster=ROSTER), new_clients()
    set_up(server, clients)
    wider = PARAMS.replace(modulus_bits=24)
    again = {
        user: Client.restore(client.save(), identity=PEOPLE[user], ledger=client._journal.ledger, params=wider)
        for user, client in clients.items()
    }
    other = Server(wider, roster=ROSTER)
    other.begin_epoch(2)
    other.catch_up(2, 1)
    set_up(other, again, 2)
    play(other, again)
    assert other.result is not None
    plain = Parameters.create(clients=USERS, dim=12, session=session_of(bytes(32)))
    with pytest.raises(WrongView):
        Client.restore(clients[0].save(), identity=PEOPLE[0], params=plain)


def test_a_plain_run_has_one_epoch() -> None:
    params = Parameters.create(clients=4, dim=8, session=session_of(bytes(32)))
    with pytest.raises(InvalidInput, match="roster must be given"):
        Server(params, bytes(32)).begin_epoch()


def test_a_server_knows_which_packages_it_lacks() -> None:
    server, clients = Server(PARAMS, roster=ROSTER), new_clients()
    set_up(server, clients)
    assert server.lacking(0) == []
    server.begin_round()
    assert server.lacking(0) == [3]
    server.receive(clients[0].share_keys(1)[0])
    assert server.lacking(0) == []


def test_an_order_is_checked_before_an_update_is_made_for_it() -> None:
    server, clients = Server(PARAMS, roster=ROSTER), new_clients()
    set_up(server, clients)
    order = server.begin_round(terms=bytes(range(32)))[0]
    with pytest.raises(WrongView):
        clients[0].check_order(order, terms=bytes(32))
    assert clients[0].check_order(order, terms=bytes(range(32))) is None
    answer = clients[0].upload(order, UPDATE, terms=bytes(range(32)))
    assert clients[0].check_order(order, terms=bytes(range(32))) == answer


def the_only_juror(draw: int) -> int:
    """Return the jury of a draw: one user, where nobody is planned to collude."""
    (juror,) = jury(ROSTER.digest, draw, USERS, PARAMS.colluders)
    return juror


def test_a_draw_whose_jurors_are_away_is_passed_over_if_nearly_everybody_else_is_here() -> None:
    away = the_only_juror(1)
    server, clients = Server(PARAMS, roster=ROSTER), new_clients()
    present = {user: client for user, client in clients.items() if user != away}
    set_up(server, present)
    following = next(number for number in range(2, 17) if the_only_juror(number) != away)
    assert next(iter(present.values())).seen == (0, following)


def test_if_many_are_away_no_draw_is_used_up() -> None:
    away = the_only_juror(1)
    server, clients = Server(PARAMS, roster=ROSTER), new_clients()
    for user in [user for user in range(USERS) if user != away][:4]:
        server.receive(clients[user].advertise_keys())
    with pytest.raises(TooFewJurors, match="draw 1"):
        server.close_stage()
    server.receive(clients[away].advertise_keys())
    assert set(server.close_stage()) == {away}
