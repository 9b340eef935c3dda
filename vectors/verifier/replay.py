"""A recorded round, exchanged again message by message, each compared with what the page demands."""

from collections.abc import Mapping, Sequence

from vectors.verifier import parameters as parameters_module
from vectors.verifier.comparing import Case, Mismatch, expect, unhex
from vectors.verifier.keys import run_keys_of
from vectors.verifier.parameters import Parameters
from vectors.verifier.server import Outgoing, Server
from vectors.verifier.user import User


def stage_of(message_name: str) -> str:
    """Return the stage of a user message: SHARE_KEYS for `share keys`."""
    return message_name.upper().replace(" ", "_")


def masked_integers(user: Case, parameters: Parameters) -> dict[int, list[int]]:
    """Return a user's integers before masking, per block."""
    if parameters.public_pattern:
        return {entry["block"]: entry["integers"] for entry in user["masked"]}
    return {b: [x] for entry in user["masked"] for b, x in zip(entry["blocks"], entry["integers"], strict=True)}


class Replay:
    """The server and the users of a recorded round, with the messages exchanged so far."""

    def __init__(self, document: Case) -> None:
        self.parameters = parameters_module.decode(unhex(document["parameters"]["bytes"]))
        self.messages: Sequence[Case] = document["messages"]
        self.integers = {user["user"]: masked_integers(user, self.parameters) for user in document["users"]}
        self.server = Server(self.parameters)
        self.outgoing: Outgoing = []
        run, roster = (document["roster"][name] for name in ("run", "users")) if "roster" in document else ("", [])
        run_keys = [unhex(entry["run_key"]) for entry in roster]
        self.users = {}
        for user in document["users"]:
            number = user["user"]
            run_private = run_keys_of(unhex(roster[number]["run_secret"]), run).run_private if roster else b""
            randomness: Mapping[str, bytes] = {name: unhex(value) for name, value in user["randomness"].items()}
            self.users[number] = User(self.parameters, number, randomness, run_private, run_keys)

    def exchange(self, message: Case) -> None:
        """Recompute the next message, compare it and give it to its receivers."""
        data = unhex(message["bytes"])
        if "from" in message:
            expect("server messages not recorded", [], [receivers for receivers, _ in self.outgoing])
            expect("stage", message["stage"], stage_of(self.server.stages[0]))
            expect("bytes", data.hex(), self.answer_of(message["from"], message["stage"]).hex())
            self.server.receive(data, transport_sender=message["from"])
            return
        if not self.outgoing:
            self.outgoing = self.server.close()
        if not self.outgoing:
            raise Mismatch("a server message after the last stage")
        receivers, found = self.outgoing.pop(0)
        expect("stage", message["stage"], stage_of(self.server.stages[0]))
        expect("receivers", message["to"], receivers)
        expect("bytes", data.hex(), found.hex())
        for user in receivers:
            self.users[user].receive(data)

    def answer_of(self, number: int, stage: str) -> bytes:
        """Return what a user sends in a stage."""
        user = self.users[number]
        if stage == "UPLOAD":
            expect("blocks before masking", sorted(self.integers[number]), user.blocks())
            return user.upload(self.integers[number])
        answers = {
            "ADVERTISE_KEYS": user.advertise_keys,
            "SHARE_KEYS": user.share_keys,
            "CONFIRM": user.confirm,
            "UNMASK": user.unmask,
        }
        return answers[stage]()

    def run(self, after: int) -> None:
        """Exchange the first messages of the record."""
        if not 0 <= after <= len(self.messages):
            raise Mismatch(f"after {after} of {len(self.messages)} messages")
        for message in self.messages[:after]:
            self.exchange(message)
