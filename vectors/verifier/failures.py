"""Files of failures: what must be refused, and with which error (16, 17)."""

from collections.abc import Callable, Iterator, Mapping

from vectors.verifier import keys, locations, messages, parameters, sharing, words
from vectors.verifier.comparing import Case, Check, Mismatch, expect, take, unhex
from vectors.verifier.errors import Refused
from vectors.verifier.hashing import read_set_of_users
from vectors.verifier.replay import Replay

Rounds = Mapping[str, Case]
DAMAGED = "truncated_message"  # The only file whose messages were damaged on the way.


def unpack_words(case: Case, _rounds: Rounds) -> None:
    """Unpack (8)."""
    bits, count, data = take(case, "bits count bytes")
    words.unpack(unhex(data), count, bits)


def decode_users(case: Case, _rounds: Rounds) -> None:
    """Read a set of users (1)."""
    clients, data = take(case, "clients bytes")
    read_set_of_users(unhex(data), clients)


def decode_locations(case: Case, _rounds: Rounds) -> None:
    """Read locations (12)."""
    dim, data = take(case, "dim bytes")
    locations.decode(unhex(data), dim)


def decode_parameters(case: Case, _rounds: Rounds) -> None:
    """Read and check parameters (3)."""
    (data,) = take(case, "bytes")
    parameters.decode(unhex(data))


def x25519(case: Case, _rounds: Rounds) -> None:
    """Agree (4)."""
    private, peer_public = take(case, "private peer_public")
    keys.agree(unhex(private), unhex(peer_public))


def unseal(case: Case, _rounds: Rounds) -> None:
    """Open a pair of shares (13)."""
    key, number, sender, receiver, sealed = take(case, "sealing_key round_number sender receiver sealed")
    keys.unseal(unhex(key), int(number), sender, receiver, unhex(sealed))


def combine_shares(case: Case, _rounds: Rounds) -> None:
    """Combine the shares of one secret (7)."""
    holders, shares = take(case, "holders shares")
    sharing.combine(holders, [unhex(share) for share in shares])


def check_roster(case: Case, _rounds: Rounds) -> None:
    """Check a roster (14)."""
    run, users = take(case, "run users")
    entries = [take(user, "identity run_key draw_key chain_tip signature") for user in users]
    keys.check_roster(run, [keys.RosterEntry(*map(unhex, entry)) for entry in entries])


def brought_to(case: Case, rounds: Rounds) -> Replay:
    """Bring a round to where its first messages have been exchanged."""
    replay = Replay(rounds[case["round"]])
    try:
        replay.run(case["after"])
    except Refused as refused:
        raise Mismatch(f"the recorded messages themselves are refused: {refused}") from refused
    return replay


def server_receives(case: Case, rounds: Rounds) -> None:
    """Give a message to the server."""
    _, _, data, transport_sender = take(case, "round after bytes", "transport_sender")
    brought_to(case, rounds).server.receive(unhex(data), transport_sender)


def client_receives(case: Case, rounds: Rounds) -> None:
    """Give a message to a user."""
    _, _, user, data = take(case, "round after user bytes")
    brought_to(case, rounds).users[user].receive(unhex(data))


def server_closes(case: Case, rounds: Rounds) -> None:
    """Give messages to the server, which takes them, and end the stage."""
    _, _, given = take(case, "round after messages")
    server = brought_to(case, rounds).server
    for data in given:
        try:
            server.receive(unhex(data))
        except Refused as refused:
            raise Mismatch(f"refused before the stage ends: {refused}") from refused
    server.close()


OPERATIONS: dict[str, Callable[[Case, Rounds], None]] = {
    operation.__name__: operation
    for operation in (
        unpack_words,
        decode_users,
        decode_locations,
        decode_parameters,
        x25519,
        unseal,
        combine_shares,
        check_roster,
        server_receives,
        client_receives,
        server_closes,
    )
}


def check_failure(name: str, case: Case, rounds: Rounds) -> None:
    """Attempt the operation and compare the error."""
    stated = {key: case[key] for key in ("operation", "error", "option") if key in case}
    inputs = {key: value for key, value in case.items() if key not in stated}
    if "round" in case and name != DAMAGED:
        for data in case.get("messages", [case.get("bytes")]):
            expect("an intact checksum", True, messages.checksum_fits(unhex(data)))
    try:
        OPERATIONS[case["operation"]](inputs, rounds)
    except Refused as refused:
        expect("error", stated["error"], refused.error)
        expect("option", stated.get("option", ""), refused.option)
        return
    raise Mismatch(f"nothing is wrong; the vector states {stated['error']}")


def checks_of_failures(name: str, document: Case, rounds: Rounds) -> Iterator[Check]:
    """Return the checks of a file of failures."""
    (cases,) = take(document, "cases")
    for place, case in enumerate(cases):
        what = f"case {place} ({case.get('about', 'no about')})"
        yield what, lambda case=case: check_failure(name, case, rounds)  # type: ignore[misc]


def is_failures(document: Case) -> bool:
    """Tell whether a file is one of failures: every case attempts an operation."""
    cases = document.get("cases")
    return isinstance(cases, list) and bool(cases) and all("operation" in case for case in cases)
