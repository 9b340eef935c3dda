"""The server of a run: the epoch (5, 7), packages (8), and rounds stage by stage (14 to 18)."""

from typing import NamedTuple

from vectors.verifier import draws, keys, messages
from vectors.verifier.errors import Refused, demand
from vectors.verifier.groups import Pod
from vectors.verifier.hashing import cut, little_endian, set_of_users
from vectors.verifier.messages import Message
from vectors.verifier.parameters import Parameters
from vectors.verifier.pod_round import PodRound, Result
from vectors.verifier.pods import Epoch, extended
from vectors.verifier.user import SEALED

Outgoing = list[tuple[list[int], bytes]]


class HeldDraw(NamedTuple):
    """A draw that waits for reveals."""

    number: int
    population: bytes
    named: list[int]
    reveals: dict[int, bytes]


class EpochPod:
    """What the server keeps of a pod between rounds."""

    def __init__(self, epoch: Epoch) -> None:
        self.epoch = epoch
        self.packages: dict[int, dict[int, Message]] = {}
        self.chain = epoch.digest
        self.declared: list[tuple[int, bytes]] = []
        self.last_upload: dict[int, int] = {}

    def history(self, user: int) -> bytes:
        """Return the declared sets that a user may not know."""
        since = self.last_upload.get(user, 0)
        return b"".join(little_endian(number, 8) + each for number, each in self.declared if number >= since)


class Server:
    """The server: takes messages of users, ends stages, begins rounds."""

    result: Result

    def __init__(self, p: Parameters, server_seed: bytes, roster: draws.Roster | None) -> None:
        self.parameters, self.server_seed, self.roster = p, server_seed, roster
        self.stage = "ADVERTISE_KEYS"
        self.epoch = 1
        self.round_number = 0
        self.may_send = set(range(p.clients))
        self.heard: set[int] = set()
        self.adverts: dict[int, Message] = {}
        self.draw: HeldDraw | None = None
        self.last_draw = 0
        self.silent: set[int] = set()
        self.groups: list[Pod] = []
        self.pods: list[EpochPod | None] = []
        self.rounds: list[PodRound] = []

    def receive(self, data: bytes, transport_sender: int | None = None) -> None:
        """Check a message in the page's order and take it."""
        if self.stage == "DRAW":
            self.take_reveal(data, transport_sender)
            return
        message = messages.decode(data, messages.FROM_USERS)
        known = message.sender < self.parameters.clients and transport_sender in (None, message.sender)
        demand(known, "UnknownSender", "nobody, or somebody else")
        if message.name == "share keys":
            self.take_package(message)
            return
        demand(message.name == self.stage.lower().replace("_", " "), "WrongStage", f"{message.name} at {self.stage}")
        due = self.epoch if self.stage == "ADVERTISE_KEYS" else self.round_number
        demand(message.round_number == due, "WrongRound", "another round")
        demand(message.sender in self.may_send, "UnknownSender", "may not send")
        demand(message.sender not in self.heard, "DuplicateMessage", "a second message")
        if message.name == "advertise keys":
            self.take_keys(message)
        else:
            self.round_of(message.sender).take(message)
            if message.name == "upload":
                self.pod_of(message.sender).last_upload[message.sender] = self.round_number
        self.heard.add(message.sender)

    # The epoch

    def begin_epoch(self, epoch: int) -> None:
        """Begin another epoch, which only a jury can draw."""
        self.epoch, self.pods, self.groups, self.adverts, self.draw = epoch, [], [], {}, None
        self.open_stage("ADVERTISE_KEYS", list(range(self.parameters.clients)))

    def take_keys(self, message: Message) -> None:
        """ADVERTISE_KEYS."""
        demand(message.view == self.parameters.digest[:8], "WrongView", "other parameters")
        key = message.fields["sealing_key"]
        fresh = all(key != other.fields["sealing_key"] for other in self.adverts.values())
        demand(fresh, "InvalidKey", "a sealing key that occurs twice")
        keys.demand_no_low_order(key)
        self.adverts[message.sender] = message

    def name_jurors(self) -> Outgoing:
        """Name as few jurors as allowed, of those that are present and have not been silent."""
        p = self.parameters
        while True:
            self.last_draw += 1
            jury = draws.jury(p.roster_digest, self.last_draw, p.clients, p.colluders)
            needed = -(-3 * len(jury) // 4)
            willing = [user for user in jury if user not in self.silent]
            if len(willing) >= needed:
                break
        named = [user for user in willing if user in self.adverts][:needed]
        population = set_of_users(range(p.clients), p.clients)
        self.draw = HeldDraw(self.last_draw, population, sorted(named), {})
        named_set = set_of_users(named, p.clients)
        request = messages.encode_array("draw request", self.last_draw, p.roster_digest, population, named_set)
        self.open_stage("DRAW", named)
        return [(sorted(named), request)]

    def take_reveal(self, data: bytes, transport_sender: int | None) -> None:
        """DRAW."""
        message = messages.decode_draw(data, "draw reveal")
        assert self.draw and self.roster
        demand(message["draw"] == self.draw.number, "WrongStage", "another draw")
        user = int.from_bytes(message["number"], "little")
        known = user in self.draw.named and transport_sender in (None, user)
        demand(known, "UnknownSender", "not a named juror")
        p, named = self.parameters, set_of_users(self.draw.named, self.parameters.clients)
        stated = draws.statement(p, self.draw.number, self.draw.population, named)
        draws.check_reveal(self.roster, self.draw.number, stated, user, message["reveal"])
        self.draw.reveals[user] = message["reveal"]
        self.heard.add(user)

    def make_epoch(self) -> Outgoing:
        """Draw the groups and send the epoch keys."""
        p = self.parameters
        if self.roster and self.draw:
            named = set_of_users(self.draw.named, p.clients)
            reveals = b"".join(self.draw.reveals[user] for user in self.draw.named)
            proof = messages.encode_array("draw proof", self.draw.number, self.draw.population, named, reveals)
            drawn = draws.read_proof(p, self.roster, proof)
        else:
            nonces = {user: message.fields["nonce"] for user, message in self.adverts.items()}
            proof = draws.plain_draw(p, self.server_seed, nonces)
            drawn = draws.read_plain_draw(p, proof)
        self.groups = drawn.pods
        outgoing: Outgoing = []
        for pod in drawn.pods:
            present = [user for user in pod.users if user in self.adverts]
            sealing_keys = b"".join(self.adverts[user].fields["sealing_key"] for user in present)
            places = set_of_users(map(pod.users.index, present), len(pod.users))
            data = messages.encode(
                "epoch keys", self.epoch, p.digest[:8], self.round_number + 1, proof, places, sealing_keys
            )
            epoch = Epoch(p, messages.decode(data, messages.FROM_SERVER), drawn.seed, pod)
            takes_part = len(present) >= epoch.threshold
            self.pods.append(EpochPod(epoch) if takes_part else None)
            if takes_part:
                outgoing.append((present, data))
        demand(bool(outgoing), "ThresholdNotMet", "no pod has enough users")
        return outgoing

    # Packages

    def pod_of(self, user: int) -> EpochPod:
        """Return the pod in which a user is present."""
        for pod in self.pods:
            if pod and user in pod.epoch.key_of:
                return pod
        raise Refused("UnknownSender", "present in no pod")

    def take_package(self, message: Message) -> None:
        """SHARE_KEYS."""
        pod = self.pod_of(message.sender)
        demand(message.view == pod.epoch.digest[:8], "WrongView", "another epoch")
        ahead = message.round_number - self.round_number
        demand(ahead in (1, 2), "WrongRound", "not one of the next two rounds")
        packages = pod.packages.setdefault(message.round_number, {})
        demand(message.sender not in packages, "DuplicateMessage", "a second package for the round")
        cut(message.fields["shares"], SEALED, len(pod.epoch.partners(message.sender)), "shares")
        mask_key = message.fields["head"][:32]
        keys.demand_no_low_order(mask_key)
        fresh = all(mask_key != other.fields["head"][:32] for other in packages.values())
        demand(fresh, "InvalidKey", "a mask key that occurs twice")
        packages[message.sender] = message

    # Rounds

    def begin(self, round_number: int, terms: bytes) -> Outgoing:
        """Begin a round: send orders to the members of committees that can still be opened."""
        self.round_number, self.rounds, outgoing = round_number, [], []
        for pod in self.pods:
            if pod:
                members = pod.packages.pop(round_number, {})
                self.rounds.append(PodRound(pod.epoch, round_number, members, terms, pod.chain))
                outgoing += self.rounds[-1].orders(pod.history)
        self.open_stage("UPLOAD", [user for users, _ in outgoing for user in users])
        return outgoing

    def round_of(self, user: int) -> PodRound:
        """Return the round of a user's pod."""
        epoch = self.pod_of(user).epoch
        return next(each for each in self.rounds if each.epoch is epoch)

    def open_stage(self, stage: str, may_send: list[int]) -> None:
        """Wait for these users."""
        self.stage, self.may_send, self.heard = stage, set(may_send), set()

    def close(self) -> Outgoing:
        """End the stage; return what is sent to whom."""
        stage = self.stage
        if stage == "ADVERTISE_KEYS" and self.roster:
            return self.name_jurors()
        if stage == "DRAW" and self.draw and len(self.draw.reveals) < len(self.draw.named):
            self.silent |= set(self.draw.named) - set(self.draw.reveals)
            return self.name_jurors()
        self.stage = "DONE"
        if stage in ("ADVERTISE_KEYS", "DRAW"):
            return self.make_epoch()
        if stage == "UPLOAD":
            self.declare()
        if stage == "CONFIRM":
            for each in self.rounds:
                each.lose_unless(len(each.confirmed) >= each.epoch.threshold)
        if stage == "UNMASK":
            for each in self.rounds:
                each.open()
        self.demand_any()
        if stage == "UNMASK":
            self.result = Result.of(self.parameters, self.rounds, self.groups)
            return []
        following = "CONFIRM" if stage == "UPLOAD" and self.parameters.confirm else "UNMASK"
        outgoing = [request for each in self.rounds if not each.over for request in each.requests(following)]
        self.open_stage(following, [user for users, _ in outgoing for user in users])
        return outgoing

    def declare(self) -> None:
        """UPLOAD has ended: settle the survivors."""
        for each in self.rounds:
            survivors = each.declare()
            if not each.over:
                pod = self.pod_of(each.epoch.present[0])
                pod.chain = extended(pod.chain, self.round_number, survivors)
                pod.declared.append((self.round_number, survivors))

    def demand_any(self) -> None:
        """The round is over if nothing can be opened."""
        if all(each.over for each in self.rounds):
            needed = sum(each.epoch.threshold for each in self.rounds)
            demand(len(self.heard) >= needed, "ThresholdNotMet", "too few users")
            raise Refused("TooLittleOpened", "nothing could be opened")
