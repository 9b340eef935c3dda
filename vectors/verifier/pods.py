"""One pod in an epoch (7), and in a round (14): what its members and the server compute alike."""

from collections.abc import Mapping, Sequence

from vectors.verifier.errors import demand
from vectors.verifier.groups import Pod
from vectors.verifier.hashing import cut, digest, little_endian, read_set_of_users, set_of_users
from vectors.verifier.messages import Message
from vectors.verifier.parameters import Parameters


class Epoch:
    """A pod with its sealing keys. Users go by their numbers; messages name them by their places."""

    def __init__(self, p: Parameters, message: Message, seed: bytes, pod: Pod) -> None:
        fields = message.fields
        self.parameters, self.pod, self.first_round = p, pod, fields["first_round"]
        self.present = self.read(fields["present"])
        sealing_keys = cut(fields["keys"], 32, len(self.present), "sealing keys")
        demand(len(set(sealing_keys)) == len(sealing_keys), "InvalidKey", "a sealing key that occurs twice")
        self.key_of = dict(zip(self.present, sealing_keys, strict=True))
        numbers = [little_endian(each, 8) for each in (message.round_number, self.first_round, pod.number)]
        self.digest = digest(
            "epoch", p.digest, numbers[0], numbers[1], seed, numbers[2], fields["present"], fields["keys"]
        )
        self.threshold = p.threshold_of(len(pod.users))
        self.min_survivors = [p.survivors_of(len(members)) for members in pod.committees]

    def write(self, users: Sequence[int]) -> bytes:
        """Write a set of users of the pod."""
        return set_of_users(map(self.pod.users.index, users), len(self.pod.users))

    def read(self, data: bytes) -> list[int]:
        """Read a set over the places of the pod; return user numbers."""
        return [self.pod.users[place] for place in read_set_of_users(data, len(self.pod.users))]

    def partners(self, user: int) -> list[int]:
        """Return a user's partners that are present."""
        return [partner for partner in self.pod.partners[user] if partner in self.key_of]

    def place(self, user: int) -> int:
        """Return a user's place."""
        return self.pod.users.index(user)


def extended(chain: bytes, round_number: int, survivors: bytes) -> bytes:
    """Return the chain after a round was declared."""
    return digest("survivors", chain, little_endian(round_number, 8), survivors)


class Order:
    """A round of a pod."""

    digest: bytes

    def __init__(self, epoch: Epoch, round_number: int, members: Sequence[int], terms: bytes, chain: bytes) -> None:
        self.epoch, self.round_number, self.members = epoch, round_number, list(members)
        self.terms, self.chain = terms, chain

    def committee(self, number: int) -> list[int]:
        """Return the members of a committee."""
        return [user for user in self.epoch.pod.committees[number] if user in self.members]

    def partners(self, user: int) -> list[int]:
        """Return a member's partners that are members."""
        return [partner for partner in self.epoch.partners(user) if partner in self.members]

    def peers(self, user: int) -> list[int]:
        """Return those with whom a member masks."""
        own = self.committee(self.epoch.pod.committee_of(user))
        return [partner for partner in self.partners(user) if partner in own]

    def parts(self, users: Sequence[int]) -> list[set[int]]:
        """Return the parts of a set of users of a committee that masks between them join."""
        parts: list[set[int]] = []
        for user in users:
            touched = [part for part in parts if part.intersection(self.peers(user))]
            parts = [part for part in parts if part not in touched] + [{user}.union(*touched)]
        return parts

    def heads_digest(self, number: int, heads: Mapping[int, bytes]) -> bytes:
        """Return the heads digest of a committee; no mask key may occur twice in it."""
        users = self.committee(number)
        mask_keys = {heads[user][:32] for user in users}
        demand(len(mask_keys) == len(users), "InvalidKey", "a mask key that occurs twice in a committee")
        names = b"".join(little_endian(user, 4) for user in users)
        return digest("heads", little_endian(self.round_number, 8), names, *(heads[user] for user in users))

    def settle(self, committees: bytes) -> None:
        """Compute the order digest."""
        number, members = little_endian(self.round_number, 8), self.epoch.write(self.members)
        self.digest = digest("order", self.epoch.digest, number, members, committees, self.terms, self.chain)
