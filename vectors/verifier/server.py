"""The server of a run: the epoch (6), key packages (7), and rounds stage by stage (12 to 16)."""

from vectors.verifier import keys, messages
from vectors.verifier.epochs import Epoch
from vectors.verifier.errors import Refused, demand
from vectors.verifier.group_round import GroupRound, Outgoing, Result
from vectors.verifier.groups import Group, draw_groups, epoch_seed
from vectors.verifier.hashing import cut, set_of_users
from vectors.verifier.messages import Message
from vectors.verifier.parameters import Parameters
from vectors.verifier.user import SEALED


class Server:
    """The server's side, without any transport."""

    result: Result

    def __init__(self, p: Parameters, roster: keys.Roster | None) -> None:
        self.parameters, self.roster = p, roster
        self.round_number = 0
        self.rounds: list[GroupRound] = []
        self.accusers: dict[int, set[int]] = {}
        self.excluded: set[int] = set()
        self.begin_epoch(1)

    def receive(self, data: bytes, transport_sender: int | None = None) -> None:
        """Check a message in the page's order and take it."""
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
            next(each for each in self.rounds if each.epoch is self.epoch_of(message.sender)).take(message)
        self.heard.add(message.sender)

    def open_stage(self, stage: str, outgoing: Outgoing) -> Outgoing:
        """Wait for those who get something."""
        self.stage, self.may_send, self.heard = stage, {user for users, _ in outgoing for user in users}, set[int]()
        return outgoing

    # The epoch

    def begin_epoch(self, number: int) -> None:
        """Begin an epoch: everybody may advertise a key."""
        p = self.parameters
        self.epoch, self.seed = number, epoch_seed(p, number, self.roster)
        self.groups: list[Group] = draw_groups(p, self.seed)
        self.epochs: dict[int, Epoch] = {}  # By group that takes part.
        self.packages: dict[int, dict[int, Message]] = {}  # By round and user.
        self.adverts: dict[int, bytes] = {}
        self.open_stage("ADVERTISE_KEYS", [(list(range(p.clients)), b"")])

    def take_keys(self, message: Message) -> None:
        """ADVERTISE_KEYS."""
        demand(message.binding == self.parameters.digest[:8], "WrongBinding", "other parameters")
        key = message.fields["sealing_key"]
        demand(key not in self.adverts.values(), "InvalidKey", "a sealing key that occurs twice")
        keys.demand_no_low_order(key)
        self.adverts[message.sender] = key

    def publish_keys(self) -> Outgoing:
        """Send the epoch keys to the groups that have enough of them."""
        p, outgoing = self.parameters, []
        for group in self.groups:
            present = [user for user in group.users if user in self.adverts]
            if len(present) >= p.threshold:
                indices = set_of_users(map(group.users.index, present), len(group.users))
                sealing_keys = b"".join(self.adverts[user] for user in present)
                fields = p.digest[:8], self.round_number + 1, indices, sealing_keys
                data = messages.encode("epoch keys", self.epoch, *fields)
                message = messages.decode(data, messages.FROM_SERVER)
                self.epochs[group.number] = Epoch(p, message, self.seed, group)
                outgoing.append((present, data))
        demand(bool(outgoing), "ThresholdNotMet", "no group has enough users")
        return outgoing

    # Key packages

    def epoch_of(self, user: int) -> Epoch:
        """Return the epoch of the group in which a user is present."""
        for epoch in self.epochs.values():
            if user in epoch.key_of:
                return epoch
        raise Refused("UnknownSender", "present in no group")

    def take_package(self, message: Message) -> None:
        """SHARE_KEYS."""
        epoch, fields = self.epoch_of(message.sender), message.fields
        demand(message.binding == epoch.digest[:8], "WrongBinding", "another epoch")
        demand(message.round_number - self.round_number in (1, 2), "WrongRound", "not one of the next two rounds")
        packages = self.packages.setdefault(message.round_number, {})
        demand(message.sender not in packages, "DuplicateMessage", "a second package for the round")
        cut(fields["shares"], SEALED, len(epoch.partners(message.sender)), "shares")
        keys.demand_no_low_order(fields["mask_key"])
        taken = [other.fields["mask_key"] for user, other in packages.items() if user in epoch.key_of]
        demand(fields["mask_key"] not in taken, "InvalidKey", "a mask key that occurs twice")
        packages[message.sender] = message

    # Rounds

    def begin(self, round_number: int, context: bytes) -> Outgoing:
        """Begin a round: send headers to the members of groups that have enough."""
        self.round_number = round_number
        packages = self.packages.pop(round_number, {})
        used = {user: message for user, message in packages.items() if user not in self.excluded}
        self.rounds = [
            GroupRound(epoch, round_number, {u: m for u, m in used.items() if u in epoch.key_of}, context)
            for epoch in self.epochs.values()
        ]
        return self.open_stage("UPLOAD", [sent for each in self.rounds for sent in each.headers()])

    def close(self) -> Outgoing:
        """End the stage; return what is sent to whom."""
        stage, self.stage = self.stage, "DONE"
        if stage == "ADVERTISE_KEYS":
            return self.publish_keys()
        if stage == "UPLOAD":
            for each in self.rounds:
                each.close_upload()
            self.demand_any()
            return self.open_stage("UNMASK", [request for each in self.rounds for request in each.requests()])
        for each in self.rounds:
            if not each.lost:
                each.open()
        newly = self.exclude()
        self.demand_any()
        self.result = Result.of(self.rounds, self.groups, newly)
        return []

    def exclude(self) -> list[int]:
        """Decide who gets no more rounds."""
        before = set(self.excluded)
        for each in self.rounds:
            self.excluded |= each.suspects
            for user, accusers in each.accusers.items():
                self.accusers.setdefault(user, set()).update(accusers)
        self.excluded |= {user for user, known in self.accusers.items() if len(known) > self.parameters.accusers}
        return sorted(self.excluded - before)

    def demand_any(self) -> None:
        """The round is over if nothing can be opened."""
        if all(each.lost for each in self.rounds):
            needed = self.parameters.quorum * len(self.rounds)
            demand(len(self.heard) >= needed, "ThresholdNotMet", "too few users")
            raise Refused("TooLittleOpened", "nothing could be opened")
