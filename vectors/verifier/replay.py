"""A recorded run, made again step by step, each message compared with what the page demands."""

from collections.abc import Callable, Sequence

from vectors.verifier import messages
from vectors.verifier import parameters as parameters_module
from vectors.verifier.comparing import Case, Mismatch, expect, take, unhex
from vectors.verifier.draws import roster_of
from vectors.verifier.errors import Refused
from vectors.verifier.masks import Words, slice_words
from vectors.verifier.server import Outgoing, Server
from vectors.verifier.user import User


class Replay:
    """The server and the users of a recorded run, with the steps made so far."""

    def __init__(self, document: Case) -> None:
        self.parameters = parameters_module.decode(unhex(document["parameters"]["bytes"]))
        self.steps: Sequence[Case] = document["steps"]
        roster, secrets = roster_of(document["roster"]) if "roster" in document else (None, [])
        seed = unhex(document["server_seed"]) if "server_seed" in document else b""
        self.server = Server(self.parameters, seed, roster)
        self.users = {
            user["user"]: User(
                self.parameters,
                user["user"],
                [unhex(drawn) for drawn in user["randomness"]],
                secrets[user["user"]] if roster else None,
                roster,
            )
            for user in document["users"]
        }
        self.outgoing: Outgoing = []
        self.inbox: dict[int, bytes] = {}
        self.packages: dict[int, list[bytes]] = {}
        self.terms = bytes(32)
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
            number, terms = take(step, "begin terms")
            self.terms, self.masked = unhex(terms), {}
            expect("round", number, self.server.round_number + 1)
            self.outgoing = self.server.begin(number, self.terms)
        elif "epoch" in step:
            (number,) = take(step, "epoch")
            expect("epoch", number, self.server.epoch + 1)
            expect("a roster", True, self.parameters.authenticated)
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
        more = "weight update masked" if step["stage"] == "UPLOAD" else ""
        number, stage, data, *_ = take(step, f"from stage bytes {more}", "forged lost")
        answer = self.answer_of(number, step)
        if "forged" in step:
            expect("forged", (True, True), (step["forged"], answer.hex() != data))
        else:
            expect("bytes", data, answer.hex())
        if "lost" in step:
            expect("lost", True, step["lost"])
        else:
            self.server.receive(unhex(data), transport_sender=number)
        if stage == "UPLOAD" and "lost" not in step:
            self.note(number, step["masked"])

    def answer_of(self, number: int, step: Case) -> bytes:
        """Return what a user sends in a stage."""
        user, stage = self.users[number], step["stage"]
        if stage == "ADVERTISE_KEYS":
            return user.advertise_keys()
        if stage == "SHARE_KEYS":
            if not self.packages.get(number):
                self.packages[number] = user.share_keys(self.server.round_number)
            return self.packages[number].pop(0)
        data = user.last_request = self.inbox[number]
        if stage == "DRAW":
            if user.juror is None:
                raise Mismatch("a reveal without a roster")
            return user.juror.answer(data)
        if stage == "UPLOAD":
            return user.upload(data, self.terms, self.integers_of(step))
        answer: Callable[[messages.Message], bytes] = {"CONFIRM": user.settle, "UNMASK": user.release}[stage]
        return answer(messages.decode(data, messages.FROM_SERVER))

    def integers_of(self, step: Case) -> Callable[[list[int]], Words]:
        """Return the integers before masking, checked against update and weight."""
        p, update, weight = self.parameters, step["update"], step["weight"]
        expect("coordinates", len(update), p.dim)
        if not 0 <= weight <= (p.max_weight or 1):
            raise Mismatch(f"weight {weight}")
        factor = weight / p.max_weight if p.max_weight else 1

        def rounded(coordinates: Sequence[int], integers: Sequence[int]) -> int:
            """Check rounding and clipping; return how many were clipped."""
            expect("values", len(integers), len(coordinates))
            exact = [update[coordinate] * p.scale * factor for coordinate in coordinates]
            for value, integer in zip(exact, integers, strict=True):
                if abs(integer) > p.limit or abs(min(max(value, -p.limit), p.limit) - integer) >= 1:
                    raise Mismatch(f"{value} is rounded to {integer}")
            return sum(abs(value) > p.limit for value in exact)

        def given(drawn: list[int]) -> Words:
            if not p.public_pattern:
                (only,) = step["masked"]
                coordinates, integers = take(only, "coordinates integers")
                expect("coordinates", coordinates, drawn)
                rounded(coordinates, integers)
                return dict(zip(coordinates, integers, strict=True))
            flat: list[int] = []
            for number, each in zip(self.slices_of(step["from"]), step["masked"], strict=True):
                which, integers = take(each, "slice integers")
                expect("slice", which, number)
                flat += slice_words(integers, weight, rounded(range(*p.bounds(number)), integers), p)
            return dict(enumerate(flat))

        return given

    def slices_of(self, user: int) -> list[int]:
        """Return the slices that a user sends in this round."""
        pod = self.users[user].in_epoch().pod
        return self.parameters.slices_of(pod.first + pod.committee_of(user), self.server.round_number)

    def note(self, user: int, masked: Sequence[Case]) -> None:
        """Keep the integers of a survivor by coordinate."""
        noted: dict[int, int] = {}
        for each in masked:
            where = each["coordinates"] if "coordinates" in each else range(*self.parameters.bounds(each["slice"]))
            noted |= zip(where, each["integers"], strict=True)
        self.masked[user] = noted

    def compare(self, stated: Case) -> None:
        """Compare the result with what the server learns, and with the plain sum of the integers."""
        p, result = self.parameters, self.server.result
        names = "survivors total contributors_per_slice weight_per_slice clipped lost false_shares"
        survivors, total, contributors, weights, clipped, lost, false = take(stated, names)
        expect("survivors", survivors, result.survivors)
        expect("total", total, result.total)
        expect("contributors_per_slice", contributors, result.contributors)
        expect("weight_per_slice", weights, result.weights if p.max_weight else None)
        expect("clipped", clipped, result.clipped if p.public_pattern else None)
        expect("lost", lost, result.lost)
        expect("false_shares", false, result.false_shares)
        plain = [0] * p.dim
        for user in survivors:
            pod = self.users[user].in_epoch().pod
            if pod.first + pod.committee_of(user) not in lost:
                for coordinate, integer in self.masked[user].items():
                    plain[coordinate] += integer
        expect("total of the integers", total, plain)
