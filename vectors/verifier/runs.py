"""Files of whole rounds: every message again, contexts, and the aggregate (17)."""

from collections.abc import Iterator

from vectors.verifier import parameters as parameters_module
from vectors.verifier import words
from vectors.verifier.blocks import check_roster
from vectors.verifier.comparing import Case, Check, Mismatch, expect, take, unhex
from vectors.verifier.keys import RosterEntry, roster_digest
from vectors.verifier.replay import Replay, stage_of
from vectors.verifier.server import Server

RANDOMNESS = "sealing_private mask_private private_seed nonce shamir_seed rounding_seed"


def check_parameters(document: Case) -> None:
    """The parameters, and the roster that they name."""
    fields, data = take(document["parameters"], "fields bytes")
    p = parameters_module.from_json(fields)
    expect("bytes", data, p.canonical.hex())
    parameters_module.check(p)
    expect("a roster", "roster" in document, p.authenticated)
    if p.authenticated:
        roster = document["roster"]
        check_roster(roster)
        entries = [RosterEntry(*(unhex(u[name]) for name in RosterEntry._fields)) for u in roster["users"]]
        expect("users in the roster", len(entries), p.clients)
        expect("roster_digest", fields["roster_digest"], roster_digest(roster["run"], entries).hex())


def check_user(user: Case, replay: Replay) -> None:
    """The integers before masking: those of the user's update, weight and clipped values."""
    p = replay.parameters
    number, randomness, weight, update, masked, _ = take(user, "user randomness weight update masked", "silent_from")
    take(randomness, RANDOMNESS)
    expect("nothing masked", not masked, is_silent(user, "UPLOAD", replay))
    for entry in masked:
        take(entry, "block integers" if p.public_pattern else "blocks integers")
    expect("coordinates", len(update), p.dim)
    if not 0 <= weight <= (p.max_weight or 1):
        raise Mismatch(f"weight {weight}")
    factor = weight / p.max_weight if p.max_weight else 1
    for block, integers in replay.integers[number].items():
        expect("width", len(integers), p.width)
        coordinates = update[block * p.length : (block + 1) * p.length]
        exact = [y * p.scale * factor for y in coordinates] + [0.0] * (p.length - len(coordinates))
        for value, integer in zip(exact, integers, strict=False):
            if abs(integer) > p.limit or abs(min(max(value, -p.limit), p.limit) - integer) >= 1:
                raise Mismatch(f"block {block}: {value} is rounded to {integer}")
        clipped = sum(abs(value) > p.limit for value in exact)
        counts = zip((weight, clipped), p.digit_counts, strict=True)
        digits = [digit for value, count in counts for digit in words.digits_of(value, count, p.digit_bits)]
        expect(f"digits of block {block}", integers[p.length :], digits)


def is_silent(user: Case, stage: str, replay: Replay) -> bool:
    """Tell whether a user sends nothing in this stage."""
    stages = stages_of(replay)
    return "silent_from" in user and stages.index(user["silent_from"]) <= stages.index(stage)


def stages_of(replay: Replay) -> list[str]:
    """Return the stages of the round."""
    return [stage_of(name) for name in Server(replay.parameters).stages]


def check_silence(document: Case, replay: Replay) -> None:
    """Exactly those who are not silent send, in every stage."""
    for stage in stages_of(replay):
        senders = [m["from"] for m in document["messages"] if m["stage"] == stage and "from" in m]
        speaking = [user["user"] for user in document["users"] if not is_silent(user, stage, replay)]
        expect(f"senders at {stage}", senders, speaking)


def check_contexts(contexts: Case, replay: Replay) -> None:
    """Digests, share graph, members and committees."""
    p, server = replay.parameters, replay.server
    names = "parameters_digest view directory_digest neighbours members members_context"
    has_committees = p.pattern == "committee"
    parameters_digest, view, directory_digest, neighbours, members, context, *committees = take(
        contexts, names + " committees" * has_committees
    )
    expect("parameters_digest", parameters_digest, p.digest.hex())
    expect("view", view, p.view.hex())
    expect("directory_digest", directory_digest, server.directory.digest.hex())
    graph = [{"user": user, "neighbours": found} for user, found in sorted(server.neighbours.items())]
    expect("neighbours", neighbours, graph)
    expect("members", members, server.members)
    expect("members_context", context, server.context.hex())
    expect("committees", committees, [server.pattern.senders] * has_committees)


def check_aggregate(document: Case, replay: Replay) -> None:
    """What the server learns, from the messages and from the integers before masking."""
    p, server = replay.parameters, replay.server
    survivors, dropped, total, contributors, weights, clipped = take(
        document["aggregate"], "survivors dropped total contributors_per_block weight_per_block clipped"
    )
    expect("nothing more to send", [], server.close())
    expect("stages left", [], server.stages)
    result = server.result
    expect("survivors", survivors, result.survivors)
    silent = [user.get("silent_from") for user in document["users"]]
    expect("dropped", list(dropped.items()), [(stage, silent.count(stage)) for stage in stages_of(replay)])
    expect("total", total, result.total)
    expect("contributors_per_block", contributors, result.contributors_per_block)
    expect("weight_per_block", weights, result.weight_per_block if p.max_weight else None)
    expect("clipped", clipped, sum(result.clipped_per_block) if p.public_pattern else None)
    plain = [0] * (p.blocks * p.length)
    for user in survivors:
        for block, integers in replay.integers[user].items():
            for place in range(p.length):
                plain[block * p.length + place] += integers[place]
    expect("total of the integers", total, plain[: p.dim])


def checks_of_round(document: Case) -> Iterator[Check]:
    """Return the checks of a round, in the order of time."""
    take(document, "parameters users contexts messages aggregate", "roster")
    yield "parameters", lambda: check_parameters(document)
    replay = Replay(document)
    expect("users", [user["user"] for user in document["users"]], list(range(replay.parameters.clients)))
    for user in document["users"]:
        yield f"user {user['user']}", lambda user=user: check_user(user, replay)  # type: ignore[misc]
    yield "silence", lambda: check_silence(document, replay)
    for place, message in enumerate(document["messages"]):
        take(message, "stage bytes " + ("from" if "from" in message else "to"))
        yield f"message {place}", lambda message=message: replay.exchange(message)  # type: ignore[misc]
    yield "contexts", lambda: check_contexts(document["contexts"], replay)
    yield "aggregate", lambda: check_aggregate(document, replay)
