"""A recorded run, made again step by step, each message compared with what the page demands."""

from collections.abc import Callable, Sequence
from math import sqrt

from vectors.verifier import keys, messages, noise, words
from vectors.verifier import parameters as parameters_module
from vectors.verifier.comparing import Case, Mismatch, expect, take, unhex
from vectors.verifier.errors import Refused
from vectors.verifier.group_round import Outgoing
from vectors.verifier.server import Server
from vectors.verifier.user import User


class Replay:
    """The server and the users of a recorded run, with the steps made so far."""

    def __init__(self, document: Case) -> None:
        self.parameters = parameters_module.decode(unhex(document["parameters"]["bytes"]))
        self.steps: Sequence[Case] = document["steps"]
        roster = keys.roster_of(document["roster"]) if "roster" in document else None
        secrets = [unhex(user["run_secret"]) for user in document["roster"]["users"]] if roster else []
        self.server = Server(self.parameters, roster)
        self.users = {
            user["user"]: User(
                self.parameters,
                user["user"],
                [unhex(drawn) for drawn in user["randomness"]],
                roster,
                keys.run_private(secrets[user["user"]], roster.run) if roster else b"",
            )
            for user in document["users"]
        }
        self.outgoing: Outgoing = []
        self.inbox: dict[int, bytes] = {}
        self.packages: dict[int, list[bytes]] = {}
        self.context = bytes(32)
        self.masked: dict[int, dict[int, int]] = {}  # By user: the integers at coordinates, in this round.

    def run(self, after: int) -> None:
        """Make the first steps of the record."""
        if not 0 <= after <= len(self.steps):
            raise Mismatch(f"after {after} of {len(self.steps)} steps")
        for step in self.steps[:after]:
            self.make(step)

    def make(self, step: Case) -> None:
        """Make the next step."""
        if not {"to", "result"} & set(step):
            expect("server messages not recorded", [], [receivers for receivers, _ in self.outgoing])
        if "from" in step:
            self.send(step)
        elif "to" in step:
            self.deliver(step)
        elif "begin" in step:
            number, context = take(step, "begin context")
            self.context, self.masked = unhex(context), {}
            expect("round", number, self.server.round_number + 1)
            self.outgoing = self.server.begin(number, self.context)
        elif "epoch" in step:
            (number,) = take(step, "epoch")
            expect("a later epoch", True, number > self.server.epoch)
            self.server.begin_epoch(number)
        elif "close" in step:
            self.close(step)
        else:
            self.compare(*take(step, "result"))

    def close(self, step: Case) -> None:
        """End the server's stage."""
        stage, error = take(step, "close", "error")
        expect("stage", stage, self.server.stage)
        try:
            self.outgoing = self.server.close()
        except Refused as refused:
            expect("error", error, refused.error)
            return
        expect("error", error, None)

    def deliver(self, step: Case) -> None:
        """Compare what the server sends."""
        receivers, stage, data = take(step, "to stage bytes")
        if not self.outgoing:
            raise Mismatch("a server message that is not sent")
        users, found = self.outgoing.pop(0)
        expect("stage", stage, "ADVERTISE_KEYS" if self.server.stage == "DONE" else self.server.stage)
        expect("receivers", receivers, users)
        expect("bytes", data, found.hex())
        for user in users:
            self.inbox[user] = found
            if stage == "ADVERTISE_KEYS":
                self.users[user].join(messages.decode(found, messages.FROM_SERVER))
                self.users[user].last_request = found

    def send(self, step: Case) -> None:
        """Compare what a user sends, and let the server take it."""
        more = "weight update coordinates integers" if step["stage"] == "UPLOAD" else ""
        number, stage, data, *_ = take(step, f"from stage bytes {more}", "forged")
        answer = self.answer_of(number, step)
        if "forged" in step:
            expect("forged", (True, True), (step["forged"], answer.hex() != data))
        else:
            expect("bytes", data, answer.hex())
        self.server.receive(unhex(data), transport_sender=number)
        if stage == "UPLOAD":
            self.masked[number] = dict(zip(step["coordinates"], step["integers"], strict=True))

    def answer_of(self, number: int, step: Case) -> bytes:
        """Return what a user sends in a stage."""
        user, stage = self.users[number], step["stage"]
        if stage == "ADVERTISE_KEYS":
            return user.advertise_keys(self.server.epoch)
        if stage == "SHARE_KEYS":
            if not self.packages.get(number):
                self.packages[number] = user.share_keys(self.server.round_number)
            return self.packages[number].pop(0)
        data = user.last_request = self.inbox[number]
        if stage == "UPLOAD":
            return user.upload(data, self.context, self.integers_of(step))
        return user.release(messages.decode(data, messages.FROM_SERVER))

    def integers_of(self, step: Case) -> Callable[[list[int]], list[int]]:
        """Return the integers before masking, checked against update and weight."""
        p, update, weight, integers = self.parameters, step["update"], step["weight"], step["integers"]
        expect("length of the update", len(update), p.dim)
        if not 0 <= weight <= (p.max_weight or 1):
            raise Mismatch(f"weight {weight}")
        factor = weight / p.max_weight if p.max_weight else 1

        def given(coordinates: list[int]) -> list[int]:
            expect("coordinates", step["coordinates"], coordinates)
            values = [update[coordinate] for coordinate in coordinates]
            if p.noise:
                self.compare_noisy(step["from"], values, integers)
                return list(integers)
            exact, bound = [value * p.scale * factor for value in values], p.limit * factor
            rounded_from([min(max(value, -bound), bound) for value in exact], integers)
            if any(abs(integer) > p.limit for integer in integers):
                raise Mismatch("an integer beyond the limit")
            beside = weight, sum(abs(value) > bound for value in exact)
            counts = zip(beside, p.digit_counts, strict=True)
            digits = [digit for value, count in counts for digit in words.digits_of(value, count, p.digit_bits)]
            return [*integers, *digits]

        return given

    def compare_noisy(self, number: int, values: Sequence[float], integers: Sequence[int]) -> None:
        """Take the noise away, and check clip, rounding and norm of what is left."""
        p, (squared_norm, variance) = self.parameters, self.parameters.noise or (0, 0.0)
        seed = self.users[number].draw(32)
        # A server that follows the protocol, and nobody colluding: t honest users are in every sum.
        added = noise.draws(variance / p.threshold, seed, len(integers))
        rounded = [integer - noisy for integer, noisy in zip(integers, added, strict=True)]
        factor = min(1.0, p.slice_clip / sqrt(sum(value * value for value in values)))
        rounded_from([value * factor * p.scale for value in values], rounded, slack=1e-9)
        if sum(each * each for each in rounded) > squared_norm:
            raise Mismatch("a longer vector than is allowed")

    def compare(self, stated: Case) -> None:
        """Compare the result with what the server learns, and with the plain sum of the integers."""
        p, result = self.parameters, self.server.result
        names = "survivors total contributors weights clipped lost false_shares excluded"
        survivors, total, contributors, weights, clipped, lost, false, excluded = take(stated, names)
        expect("survivors", survivors, result.survivors)
        expect("total", total, result.total)
        expect("contributors", contributors, result.contributors)
        expect("weights", weights, result.weights if p.max_weight and p.public_pattern else None)
        expect("clipped", clipped, result.clipped if p.public_pattern and not p.noise else None)
        expect("lost", lost, result.lost)
        expect("false_shares", false, result.false_shares)
        expect("excluded", excluded, result.excluded)
        plain = [0] * p.dim
        for user in survivors:
            for coordinate, integer in self.masked[user].items():
                plain[coordinate] += integer
        expect("total of the integers", total, plain)


def rounded_from(exact: Sequence[float], integers: Sequence[int], slack: float = 0) -> None:
    """Check that numbers are rounded to a neighbour; `slack` is left to the rounding of floats."""
    for value, integer in zip(exact, integers, strict=True):
        if abs(value - integer) >= 1 + slack:
            raise Mismatch(f"{value} is rounded to {integer}")
