"""One group in an epoch (6), and in a round (12): what its members and the server compute alike."""

from collections.abc import Collection, Sequence

from vectors.verifier.errors import demand
from vectors.verifier.groups import Group
from vectors.verifier.hashing import cut, digest, little_endian, read_set_of_users, set_of_users
from vectors.verifier.messages import Message
from vectors.verifier.parameters import Parameters
from vectors.verifier.slices import coordinates


class Epoch:
    """A group with its sealing keys. Users go by their numbers; messages name them by their indices."""

    def __init__(self, p: Parameters, message: Message, seed: bytes, group: Group) -> None:
        fields = message.fields
        self.parameters, self.group, self.seed, self.first_round = p, group, seed, fields["first_round"]
        self.present = self.read(fields["present"])
        sealing_keys = cut(fields["keys"], 32, len(self.present), "sealing keys")
        demand(len(set(sealing_keys)) == len(sealing_keys), "InvalidKey", "a sealing key that occurs twice")
        self.key_of = dict(zip(self.present, sealing_keys, strict=True))
        numbers = [little_endian(each, 8) for each in (message.round_number, self.first_round, group.number)]
        self.digest = digest(
            "epoch", p.digest, numbers[0], numbers[1], seed, numbers[2], fields["present"], fields["keys"]
        )

    def write(self, users: Collection[int]) -> bytes:
        """Write a set of users of the group."""
        return set_of_users(map(self.group.users.index, users), len(self.group.users))

    def read(self, data: bytes) -> list[int]:
        """Read a set over the indices of the group; return user numbers."""
        return [self.group.users[index] for index in read_set_of_users(data, len(self.group.users))]

    def partners(self, user: int) -> list[int]:
        """Return a user's partners that are present."""
        return [partner for partner in self.group.partners[user] if partner in self.key_of]

    def index(self, user: int) -> int:
        """Return a user's index."""
        return self.group.users.index(user)


class Header:
    """A round of a group."""

    def __init__(self, epoch: Epoch, message: Message) -> None:
        fields = message.fields
        self.epoch, self.round_number, self.context = epoch, message.round_number, fields["context"]
        self.members = epoch.read(fields["members"])
        mask_keys = cut(fields["mask_keys"], 32, len(self.members), "mask keys")
        demand(len(set(mask_keys)) == len(mask_keys), "InvalidKey", "a mask key that occurs twice")
        self.mask_key = dict(zip(self.members, mask_keys, strict=True))
        number = little_endian(self.round_number, 8)
        self.digest = digest("header", epoch.digest, number, fields["members"], fields["mask_keys"], fields["context"])

    def partners(self, user: int) -> list[int]:
        """Return a member's partners that are members."""
        return [partner for partner in self.epoch.partners(user) if partner in self.members]

    def parts(self, users: Sequence[int]) -> list[set[int]]:
        """Return the parts of a set of members that masks between them join."""
        parts: list[set[int]] = []
        for user in users:
            touched = [part for part in parts if part.intersection(self.partners(user))]
            parts = [part for part in parts if part not in touched] + [{user}.union(*touched)]
        return parts

    @property
    def coordinates(self) -> list[int]:
        """What the group sends in this round, if that is public."""
        p, epoch = self.epoch.parameters, self.epoch
        return coordinates(p.alpha_q32, p.dim, p.slices, epoch.seed, epoch.group.number, self.round_number)
