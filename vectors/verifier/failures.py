"""Files of failures: what must be refused, and with which error (19)."""

from collections.abc import Callable, Iterator, Mapping

from vectors.verifier import groups, keys, locations, messages, parameters, sharing, words
from vectors.verifier.comparing import Case, Check, Mismatch, expect, take, unhex
from vectors.verifier.errors import Refused
from vectors.verifier.hashing import read_set_of_users
from vectors.verifier.replay import Replay

Runs = Mapping[str, Case]
DAMAGED = "truncated_message"  # The only file whose messages were damaged on the way.


def unpack_words(case: Case, _runs: Runs) -> None:
    """Unpack (9)."""
    bits, count, data = take(case, "bits count bytes")
    words.unpack(unhex(data), count, bits)


def decode_users(case: Case, _runs: Runs) -> None:
    """Read a set (1)."""
    count, data = take(case, "count bytes")
    read_set_of_users(unhex(data), count)


def decode_locations(case: Case, _runs: Runs) -> None:
    """Read locations (11)."""
    dim, data = take(case, "dim bytes")
    locations.decode(unhex(data), dim)


def decode_parameters(case: Case, _runs: Runs) -> None:
    """Read and check parameters (3)."""
    (data,) = take(case, "bytes")
    parameters.decode(unhex(data))


def x25519(case: Case, _runs: Runs) -> None:
    """Agree (6)."""
    private, peer_public = take(case, "private peer_public")
    keys.agree(unhex(private), unhex(peer_public))


def unseal(case: Case, _runs: Runs) -> None:
    """Open a pair of shares (7)."""
    secret, sender, receiver, sealed = take(case, "round_secret sender receiver sealed")
    keys.unseal(unhex(secret), sender, receiver, unhex(sealed))


def combine_shares(case: Case, _runs: Runs) -> None:
    """Combine the shares of one secret (8)."""
    holders, shares = take(case, "holders shares")
    sharing.combine(holders, [unhex(share) for share in shares])


def check_roster(case: Case, _runs: Runs) -> None:
    """Check a roster, and ask for the seed of an epoch (4)."""
    *_, value, epoch = take(case, "run users seed group_size colluding beacon", "value epoch")
    roster = keys.roster_of(case)
    keys.check_roster(roster)
    if value is not None:
        roster.seed_from_beacon(unhex(value))
    roster.epoch_seed(epoch or 1)


def epoch_seed(case: Case, _runs: Runs) -> None:
    """Ask for the seed of an epoch in a run without a roster (4)."""
    encoded, epoch = take(case, "parameters epoch")
    groups.epoch_seed(parameters.decode(unhex(encoded)), epoch, None)


def brought_to(case: Case, runs: Runs) -> Replay:
    """Bring a run to where its first steps have been made."""
    replay = Replay(runs[case["run"]])
    try:
        replay.run(case["after"])
    except Refused as refused:
        raise Mismatch(f"the recorded messages themselves are refused: {refused}") from refused
    return replay


def server_receives(case: Case, runs: Runs) -> None:
    """Give a message to the server."""
    _, _, data, transport_sender = take(case, "run after bytes", "transport_sender")
    brought_to(case, runs).server.receive(unhex(data), transport_sender)


def client_receives(case: Case, runs: Runs) -> None:
    """Give a message to a user."""
    _, _, user, data = take(case, "run after user bytes")
    replay = brought_to(case, runs)
    replay.users[user].receive(unhex(data), replay.context)


def server_closes(case: Case, runs: Runs) -> None:
    """Give messages to the server, which takes them, and end the stage."""
    _, _, given = take(case, "run after messages")
    server = brought_to(case, runs).server
    for data in given:
        try:
            server.receive(unhex(data))
        except Refused as refused:
            raise Mismatch(f"refused before the stage ends: {refused}") from refused
    server.close()


OPERATIONS: dict[str, Callable[[Case, Runs], None]] = {
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
        epoch_seed,
        server_receives,
        client_receives,
        server_closes,
    )
}


def check_failure(name: str, case: Case, runs: Runs) -> None:
    """Attempt the operation and compare the error."""
    stated = {key: case[key] for key in ("operation", "error", "option") if key in case}
    inputs = {key: value for key, value in case.items() if key not in stated}
    if "run" in case and "after" in case and name != DAMAGED:
        for data in case.get("messages", [case.get("bytes")]):
            expect("an intact checksum", True, messages.checksum_fits(unhex(data)))
    try:
        OPERATIONS[case["operation"]](inputs, runs)
    except Refused as refused:
        expect("error", stated["error"], refused.error)
        expect("option", stated.get("option", ""), refused.option)
        return
    raise Mismatch(f"nothing is wrong; the vector states {stated['error']}")


def checks_of_failures(name: str, document: Case, runs: Runs) -> Iterator[Check]:
    """Return the checks of a file of failures."""
    (cases,) = take(document, "cases")
    for place, case in enumerate(cases):
        what = f"case {place} ({case.get('about', 'no about')})"
        yield what, lambda case=case: check_failure(name, case, runs)  # type: ignore[misc]


def is_failures(document: Case) -> bool:
    """Tell whether a file is one of failures: every case attempts an operation."""
    cases = document.get("cases")
    return isinstance(cases, list) and bool(cases) and all("operation" in case for case in cases)
