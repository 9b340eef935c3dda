"""Files of whole runs: every step again, and the contexts."""

from collections.abc import Iterator

from vectors.verifier import parameters as parameters_module
from vectors.verifier.blocks import check_users
from vectors.verifier.comparing import Case, Check, expect, take
from vectors.verifier.keys import check_roster, roster_of
from vectors.verifier.replay import Replay


def check_parameters(document: Case) -> None:
    """The parameters, and the roster that they name."""
    fields, data = take(document["parameters"], "fields bytes")
    p = parameters_module.from_json(fields)
    expect("bytes", data, p.canonical.hex())
    parameters_module.check(p)
    expect("a roster", "roster" in document, p.authenticated)
    if p.authenticated:
        take(document["roster"], "run group_size colluding beacon seed users")
        check_users(document["roster"])
        roster = roster_of(document["roster"])
        check_roster(roster)
        expect("users in the roster", len(roster.users), p.clients)
        expect("roster_digest", fields["roster_digest"], roster.digest.hex())


def check_randomness(replay: Replay) -> None:
    """Nobody has drawn less than is recorded."""
    expect("draws left", [], [user.number for user in replay.users.values() if user.randomness])


def check_epoch(stated: Case, replay: Replay) -> None:
    """The groups of an epoch that was just set up."""
    server = replay.server
    number, seed, groups = take(stated, "epoch seed groups")
    expect("epoch", number, server.epoch)
    expect("seed", seed, server.seed.hex())
    expect("number of groups", len(groups), len(server.groups))
    for each, group in zip(groups, server.groups, strict=True):
        users, present, epoch_digest = take(each, "users present epoch_digest")
        epoch = server.epochs.get(group.number)
        expect("users", users, group.users)
        expect("present", present, epoch.present if epoch else [])
        expect("epoch_digest", epoch_digest, epoch.digest.hex() if epoch else None)


def check_headers(stated: Case, replay: Replay) -> None:
    """The headers of a round that has just begun."""
    number, groups = take(stated, "round groups")
    expect("round", number, replay.server.round_number)
    for each, found in zip(groups, replay.server.rounds, strict=True):
        group, members, header_digest = take(each, "group members header_digest")
        expect("group", group, found.epoch.group.number)
        expect("members", members, found.header.members)
        expect("header_digest", header_digest, found.header.digest.hex())


def checks_of_run(document: Case) -> Iterator[Check]:
    """Return the checks of a run, in the order of time."""
    take(document, "parameters users steps contexts", "roster")
    yield "parameters", lambda: check_parameters(document)
    for user in document["users"]:
        take(user, "user randomness")
    replay = Replay(document)
    expect("users", [user["user"] for user in document["users"]], list(range(replay.parameters.clients)))
    parameters_digest, epochs, rounds, excluded = take(document["contexts"], "parameters_digest epochs rounds excluded")
    yield "digest", lambda: expect("parameters_digest", parameters_digest, replay.parameters.digest.hex())
    headers, drawn = iter(rounds), iter(epochs)
    for place, step in enumerate(document["steps"]):
        yield f"step {place}", lambda step=step: replay.make(step)  # type: ignore[misc]
        if step.get("close") == "ADVERTISE_KEYS":
            epoch: Case = next(drawn, {})
            yield f"the epoch after step {place}", lambda epoch=epoch: check_epoch(epoch, replay)  # type: ignore[misc]
        if "begin" in step:
            stated: Case = next(headers, {})
            yield f"headers of round {step['begin']}", lambda stated=stated: check_headers(stated, replay)  # type: ignore[misc]
    yield "contexts", lambda: expect("rounds and epochs left over", [], [*headers, *drawn])
    yield "excluded", lambda: expect("excluded", excluded, sorted(replay.server.excluded))
    yield "randomness", lambda: check_randomness(replay)
