"""One group in one round, on the server's side (12 to 16)."""

from collections.abc import Mapping, Sequence
from math import comb
from typing import NamedTuple

from vectors.verifier import keys, locations, messages, sharing, words
from vectors.verifier.epochs import Epoch, Header
from vectors.verifier.errors import Refused, demand
from vectors.verifier.groups import Group
from vectors.verifier.hashing import cut
from vectors.verifier.masks import Words, lay_mask, lay_pair_mask
from vectors.verifier.messages import Message
from vectors.verifier.user import SEALED

Outgoing = list[tuple[list[int], bytes]]


class Unmask(NamedTuple):
    """What a holder released: whom it counts as a survivor, and one share by owner."""

    survivors: list[int]
    shares: dict[int, bytes]


class GroupRound:
    """A group in a round."""

    def __init__(self, epoch: Epoch, round_number: int, packages: Mapping[int, Message], context: bytes) -> None:
        self.epoch, self.packages, self.parameters = epoch, packages, epoch.parameters
        members, mask_keys = sorted(packages), [packages[user].fields["mask_key"] for user in sorted(packages)]
        self.fields = epoch.write(members), b"".join(mask_keys), context
        names = {"members": self.fields[0], "mask_keys": self.fields[1], "context": context}
        self.header = Header(epoch, Message("round header", round_number, epoch.digest[:8], names))
        self.tags: dict[tuple[int, int], bytes] = {}  # By sender and receiver.
        self.sent: dict[int, Words] = {}
        self.unmask: dict[int, Unmask] = {}
        self.sums: Words = {}
        self.inside: list[int] = []  # Who is in the sum.
        self.false: set[tuple[int, int]] = set()
        self.accusers: dict[int, set[int]] = {}
        self.suspects: set[int] = set()
        self.lost = len(members) < self.parameters.quorum

    def headers(self) -> Outgoing:
        """Return the headers, each to one member."""
        outgoing: Outgoing = []
        for user in [] if self.lost else self.header.members:
            shares = b"".join(self.sealed(owner, user) for owner in self.header.partners(user))
            binding = self.epoch.digest[:8]
            data = messages.encode("round header", self.header.round_number, binding, *self.fields, shares)
            outgoing.append(([user], data))
        return outgoing

    def sealed(self, owner: int, holder: int) -> bytes:
        """Return the pair of shares that an owner sealed for a holder."""
        partners = self.epoch.partners(owner)
        return cut(self.packages[owner].fields["shares"], SEALED, len(partners), "shares")[partners.index(holder)]

    def take(self, message: Message) -> None:
        """Take an upload or shares."""
        demand(message.binding == self.header.digest[:8], "WrongBinding", "another header")
        take = {"upload": self.take_upload, "unmask": self.take_unmask}
        take[message.name](message.sender, message.fields)

    def take_upload(self, sender: int, fields: Mapping[str, bytes]) -> None:
        """UPLOAD."""
        p, partners = self.parameters, self.header.partners(sender)
        tags = cut(fields["tags"], keys.TAG, len(partners), "tags")
        if p.public_pattern:
            demand(not fields["locations"], "MalformedMessage", "locations with a public pattern")
            positions = list(range(len(self.header.coordinates) + sum(p.digit_counts)))
        else:
            positions = locations.decode(fields["locations"], p.dim)
        received = words.unpack(fields["words"], len(positions), p.modulus_bits)
        self.sent[sender] = dict(zip(positions, received, strict=True))
        self.tags |= {(sender, partner): tag for partner, tag in zip(partners, tags, strict=True)}

    def take_unmask(self, sender: int, fields: Mapping[str, bytes]) -> None:
        """UNMASK."""
        owners, survivors = self.epoch.read(fields["owners"]), self.epoch.read(fields["survivors"])
        held = {sender, *self.header.partners(sender)}
        demand(set(owners) <= held, "InvalidShare", "a share that the sender does not hold")
        shares = cut(fields["shares"], sharing.SHARE, len(owners), "shares")
        for share in shares:
            sharing.elements(share)
        self.unmask[sender] = Unmask(survivors, dict(zip(owners, shares, strict=True)))

    def close_upload(self) -> None:
        """Settle whether enough have uploaded."""
        self.lost |= len(self.sent) < self.parameters.quorum

    def requests(self) -> Outgoing:
        """Ask the survivors for shares."""
        header, survivors = self.header, sorted(self.sent)
        outgoing: Outgoing = []
        for user in [] if self.lost else survivors:
            tags = b"".join(self.tags[partner, user] for partner in header.partners(user) if partner in survivors)
            fields = header.digest[:8], self.epoch.write(survivors), tags
            outgoing.append(([user], messages.encode("unmask request", header.round_number, *fields)))
        return outgoing

    def open(self) -> None:
        """Restore one secret per member, and take the masks out of the sum."""
        p = self.parameters
        self.note_accusers()
        self.lost |= len(self.unmask) < p.quorum
        if self.lost:
            return
        seeds: dict[int, bytes] = {}
        mask_privates: dict[int, bytes] = {}
        failed = []
        for owner in self.header.members:
            seed = self.restore(owner, of_seed=True) if owner in self.sent else None
            secret = self.restore(owner, of_seed=False) if seed is None else None
            if seed is not None:
                seeds[owner] = seed
            elif secret is not None:
                mask_privates[owner] = keys.mask_private(secret, p.run, self.header.round_number, owner)
            else:
                failed.append(owner)
        self.suspect(failed)
        if failed or len(seeds) < p.threshold:
            self.lost = True
            return
        self.inside, self.sums = sorted(seeds), self.opened(seeds, mask_privates)
        self.lost = not self.is_possible()

    def note_accusers(self) -> None:
        """Note which holder found no valid tag of which survivor, or no share of which member."""
        for holder, answer in self.unmask.items():
            near = {holder, *self.header.partners(holder)}
            for user in near & set(self.sent) - set(answer.survivors) | near - set(answer.shares):
                self.accusers.setdefault(user, set()).add(holder)

    def restore(self, owner: int, of_seed: bool) -> bytes | None:
        """Restore the private seed or the mask secret of an owner from the shares that are said to be of it."""
        p, number = self.parameters, self.header.round_number
        shares = {
            self.epoch.index(holder): answer.shares[owner]
            for holder, answer in self.unmask.items()
            if owner in answer.shares and (owner in answer.survivors) == of_seed
        }
        try:
            secret, false = sharing.restore(shares, p.threshold)
        except Refused:
            return None
        if of_seed:
            genuine = keys.seed_commitment(secret, p.run, number, owner) == self.packages[owner].fields["commitment"]
        else:
            made = keys.public_key(keys.mask_private(secret, p.run, number, owner))
            genuine = made == self.header.mask_key[owner]
        if not genuine:
            return None
        self.false |= {(self.epoch.group.users[index], owner) for index in false}
        return secret

    def suspect(self, failed: Sequence[int]) -> None:
        """Name who sent false shares of more than half of the secrets, or shared what can't be restored."""
        half = len(self.header.members) / 2
        holders = [holder for holder, _ in self.false]
        self.suspects |= {holder for holder in holders if holders.count(holder) > half}
        if len(failed) <= half:
            self.suspects |= {owner for owner in failed if self.is_to_blame(owner)}

    def is_to_blame(self, owner: int) -> bool:
        """Tell whether as many holders as may collude could not have made a secret fail."""
        p = self.parameters
        answered = len({owner, *self.header.partners(owner)} & set(self.unmask))
        spare = answered - p.threshold
        if spare > 0 and comb(answered, spare) <= 5000:
            return spare >= p.accusers
        return spare >= 2

    def opened(self, seeds: Mapping[int, bytes], mask_privates: Mapping[int, bytes]) -> Words:
        """Return the sum without masks."""
        p, header = self.parameters, self.header
        size = len(header.coordinates) + sum(p.digit_counts) if p.public_pattern else p.dim
        sums: Words = dict.fromkeys(range(size), 0)
        for user, seed in seeds.items():
            for position, word in self.sent[user].items():
                sums[position] = (sums[position] + word) % p.modulus
            lay_mask(sums, self.sent[user], keys.private_mask_seed(seed, header.digest, user), -1, p)
        for user, private in mask_privates.items():
            for peer in header.partners(user):
                if peer in seeds:
                    agreed = keys.agree(private, header.mask_key[peer])
                    lay_pair_mask(sums, agreed, header.digest, user, peer, -1 if peer < user else 1, p)
        return sums

    @property
    def beside(self) -> tuple[int, int]:
        """Weight and clipped values."""
        p, length = self.parameters, len(self.header.coordinates)
        digits = [self.sums[position] for position in range(length, length + sum(p.digit_counts))]
        middle = p.digit_counts[0]
        return words.from_digits(digits[:middle], p.digit_bits), words.from_digits(digits[middle:], p.digit_bits)

    def is_possible(self) -> bool:
        """Tell whether honest users can have sent this."""
        p, count = self.parameters, len(self.inside)
        if not p.public_pattern:
            return True
        length, (weight, clipped) = len(self.header.coordinates), self.beside
        if weight > count * max(1, p.max_weight) or clipped > count * length:
            return False
        share = weight / p.max_weight if p.max_weight else count
        largest = max(abs(words.signed(self.sums[position], p.modulus_bits)) for position in range(length))
        return largest <= p.limit * share + count


class Result(NamedTuple):
    """What the server learns."""

    survivors: list[int]
    total: list[int]
    contributors: list[int]
    weights: list[int]
    clipped: int
    lost: list[int]
    false_shares: list[list[object]]
    excluded: list[int]

    @staticmethod
    def of(rounds: Sequence[GroupRound], groups: Sequence[Group], excluded: Sequence[int]) -> "Result":
        """Add up what the groups have opened."""
        p = rounds[0].parameters
        total, contributors, weights, clipped = [0] * p.dim, [0] * p.dim, [0] * p.dim, 0
        opened = [each for each in rounds if not each.lost]
        for each in opened:
            where = each.header.coordinates if p.public_pattern else range(p.dim)
            for position, coordinate in enumerate(where):
                total[coordinate] += words.signed(each.sums[position], p.modulus_bits)
                contributors[coordinate] += sum(position in each.sent[user] for user in each.inside)
                weights[coordinate] += each.beside[0] if p.public_pattern else 0
            clipped += each.beside[1] if p.public_pattern else 0
        running = {each.epoch.group.number for each in opened}
        false: dict[int, list[int]] = {}
        for holder, owner in sorted(pair for each in rounds for pair in each.false):
            false.setdefault(holder, []).append(owner)
        return Result(
            sorted(user for each in opened for user in each.inside),
            total,
            contributors,
            weights,
            clipped,
            [group.number for group in groups if group.number not in running],
            [[holder, owners] for holder, owners in sorted(false.items())],
            sorted(excluded),
        )
