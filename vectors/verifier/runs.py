"""Files of whole runs: every step again, and the contexts (22)."""

from collections.abc import Iterator

from vectors.verifier import parameters as parameters_module
from vectors.verifier.blocks import check_roster
from vectors.verifier.comparing import Case, Check, expect, take
from vectors.verifier.draws import roster_of
from vectors.verifier.replay import Replay


def check_parameters(document: Case) -> None:
    """The parameters, and the roster that they name."""
    fields, data = take(document["parameters"], "fields bytes")
    p = parameters_module.from_json(fields)
    expect("bytes", data, p.canonical.hex())
    parameters_module.check(p)
    expect("a roster", "roster" in document, p.authenticated)
    if p.authenticated:
        check_roster(document["roster"])
        roster, _ = roster_of(document["roster"])
        expect("users in the roster", len(roster.users), p.clients)
        expect("roster_digest", fields["roster_digest"], roster.digest.hex())


def check_randomness(replay: Replay) -> None:
    """Nobody has drawn less than is recorded."""
    expect("draws left", [], [user.number for user in replay.users.values() if user.randomness])


def check_pods(pods: list[Case], replay: Replay) -> None:
    """The pods of an epoch."""
    p, server = replay.parameters, replay.server
    expect("number of pods", len(pods), len(server.groups))
    for stated, group, pod in zip(pods, server.groups, server.pods, strict=True):
        users, committees, threshold, least, present, epoch_digest = take(
            stated, "users committees threshold min_survivors present epoch_digest"
        )
        expect("users", users, group.users)
        expect("committees", committees, group.committees)
        expect("threshold", threshold, p.threshold_of(len(group.users)))
        expect("min_survivors", least, [p.survivors_of(len(members)) for members in group.committees])
        expect("present", present, pod.epoch.present if pod else [])
        expect("epoch_digest", epoch_digest, pod.epoch.digest.hex() if pod else None)


def check_orders(stated: Case, replay: Replay) -> None:
    """The orders of a round that has just begun."""
    number, pods = take(stated, "round pods")
    expect("round", number, replay.server.round_number)
    for each, found in zip(pods, replay.server.rounds, strict=True):
        pod, members, chain, order_digest = take(each, "pod members chain order_digest")
        expect("pod", pod, found.epoch.pod.number)
        expect("members", members, found.order.members)
        expect("chain", chain, found.order.chain.hex())
        expect("order_digest", order_digest, found.order.digest.hex())


def checks_of_run(document: Case) -> Iterator[Check]:
    """Return the checks of a run, in the order of time."""
    take(document, "parameters users steps contexts", "roster server_seed")
    yield "parameters", lambda: check_parameters(document)
    for user in document["users"]:
        take(user, "user randomness")
    replay = Replay(document)
    expect("users", [user["user"] for user in document["users"]], list(range(replay.parameters.clients)))
    parameters_digest, epochs, rounds = take(document["contexts"], "parameters_digest epochs rounds")
    yield "digest", lambda: expect("parameters_digest", parameters_digest, replay.parameters.digest.hex())
    orders, pods = iter(rounds), iter(epochs)
    for place, step in enumerate([*document["steps"], {"epoch": 0}]):
        if "epoch" in step:
            drawn: list[Case] = next(pods, [])
            yield f"pods before step {place}", lambda drawn=drawn: check_pods(drawn, replay)  # type: ignore[misc]
        if step.get("epoch") != 0:
            yield f"step {place}", lambda step=step: replay.make(step)  # type: ignore[misc]
        if "begin" in step:
            stated: Case = next(orders, {})
            yield f"orders of round {step['begin']}", lambda stated=stated: check_orders(stated, replay)  # type: ignore[misc]
    yield "contexts", lambda: expect("rounds and epochs left over", [], [*orders, *pods])
    yield "randomness", lambda: check_randomness(replay)
