"""One pod in one round, on the server's side (14 to 18)."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from vectors.verifier import keys, locations, messages, sharing, words
from vectors.verifier.errors import Refused, demand
from vectors.verifier.groups import Pod
from vectors.verifier.hashing import cut
from vectors.verifier.masks import Words, lay_mask, lay_pair_mask
from vectors.verifier.messages import Message
from vectors.verifier.parameters import Parameters
from vectors.verifier.pods import Epoch, Order
from vectors.verifier.user import SEALED

Outgoing = list[tuple[list[int], bytes]]


class PodRound:
    """A pod in a round."""

    def __init__(
        self, epoch: Epoch, round_number: int, packages: Mapping[int, Message], terms: bytes, chain: bytes
    ) -> None:
        self.epoch, self.packages, self.parameters = epoch, packages, epoch.parameters
        self.order = Order(epoch, round_number, sorted(packages), terms, chain)
        self.heads = {user: message.fields["head"] for user, message in packages.items()}
        self.numbers = range(len(epoch.pod.committees))
        self.committees = b"".join(self.order.heads_digest(number, self.heads) for number in self.numbers)
        self.order.settle(self.committees)
        self.survivors: list[int] = []
        self.tags: dict[tuple[int, int], bytes] = {}  # By sender and receiver.
        self.confirmations: dict[tuple[int, int], bytes] = {}
        self.confirmed: list[int] = []
        self.sent: dict[int, Words] = {}
        self.released: dict[int, dict[int, bytes]] = {}  # By holder and owner.
        self.sums: dict[int, Words] = {}
        self.false: set[tuple[int, int]] = set()
        self.lost = {n for n in self.numbers if len(self.order.committee(n)) < epoch.min_survivors[n]}
        self.lose_unless(len(packages) >= epoch.threshold)

    def lose_unless(self, enough: bool) -> None:
        """Lose the whole pod unless it has enough users."""
        if not enough:
            self.lost = set(self.numbers)

    @property
    def over(self) -> bool:
        """Whether nothing can be opened any more."""
        return len(self.lost) == len(self.numbers)

    def orders(self, history: Callable[[int], bytes]) -> Outgoing:
        """Return the orders, each to one user."""
        order, outgoing = self.order, []
        members = self.epoch.write(order.members)
        for number in self.numbers:
            heads = b"".join(self.heads[user] for user in order.committee(number))
            for user in [] if number in self.lost else order.committee(number):
                shares = b"".join(self.sealed(owner, user) for owner in order.partners(user))
                data = messages.encode(
                    "order",
                    order.round_number,
                    self.epoch.digest[:8],
                    members,
                    self.committees,
                    heads,
                    order.terms,
                    history(user),
                    shares,
                )
                outgoing.append(([user], data))
        return outgoing

    def sealed(self, owner: int, holder: int) -> bytes:
        """Return the pair of shares that an owner sealed for a holder."""
        partners = self.epoch.partners(owner)
        return cut(self.packages[owner].fields["shares"], SEALED, len(partners), "shares")[partners.index(holder)]

    def take(self, message: Message) -> None:
        """Take an upload, a confirmation or shares."""
        demand(message.view == self.order.digest[:8], "WrongView", "another order")
        take = {"upload": self.take_upload, "confirm": self.take_confirm, "unmask": self.take_unmask}
        take[message.name](message.sender, message.fields)

    def take_upload(self, sender: int, fields: Mapping[str, bytes]) -> None:
        """UPLOAD."""
        p, partners = self.parameters, self.order.partners(sender)
        tags = cut(fields["tags"], keys.TAG, len(partners), "tags")
        if p.public_pattern:
            demand(not fields["locations"], "MalformedMessage", "locations with a public pattern")
            positions = list(range(p.served * p.width))
        else:
            positions = locations.decode(fields["locations"], p.dim)
        received = words.unpack(fields["words"], len(positions), p.modulus_bits)
        self.sent[sender] = dict(zip(positions, received, strict=True))
        self.tags |= {(sender, partner): tag for partner, tag in zip(partners, tags, strict=True)}

    def take_confirm(self, sender: int, fields: Mapping[str, bytes]) -> None:
        """CONFIRM."""
        others = [partner for partner in self.order.partners(sender) if partner in self.survivors]
        tags = cut(fields["tags"], keys.TAG, len(others), "tags")
        self.confirmations |= {(sender, other): tag for other, tag in zip(others, tags, strict=True)}
        self.confirmed = sorted([*self.confirmed, sender])

    def take_unmask(self, sender: int, fields: Mapping[str, bytes]) -> None:
        """UNMASK."""
        owners = self.epoch.read(fields["owners"])
        held = {sender, *self.order.partners(sender)}
        demand(set(owners) <= held, "InvalidShare", "a share that the sender does not hold")
        shares = cut(fields["shares"], sharing.SHARE, len(owners), "shares")
        for share in shares:
            sharing.elements(share)
        self.released[sender] = dict(zip(owners, shares, strict=True))

    def declare(self) -> bytes:
        """Settle who survived."""
        self.survivors = sorted(self.sent)
        for number, members in enumerate(self.epoch.pod.committees):
            if len(set(members) & set(self.survivors)) < self.epoch.min_survivors[number]:
                self.lost.add(number)
        self.lose_unless(len(self.survivors) >= self.epoch.threshold)
        return self.epoch.write(self.survivors)

    def requests(self, stage: str) -> Outgoing:
        """Return what is asked for next."""
        order, survivors = self.order, self.epoch.write(self.survivors)
        head = order.round_number, order.digest[:8], survivors
        if stage == "CONFIRM":
            return [(self.survivors, messages.encode("confirm request", *head))]
        outgoing = []
        for user in self.confirmed if self.parameters.confirm else self.survivors:
            partners = [partner for partner in order.partners(user) if partner in self.survivors]
            tags = b"".join(self.tags[partner, user] for partner in partners)
            confirmers = [partner for partner in partners if partner in self.confirmed]
            made = b"".join(self.confirmations[partner, user] for partner in confirmers)
            named = self.epoch.write(confirmers) if confirmers else b""
            outgoing.append(([user], messages.encode("unmask request", *head, tags, named, made)))
        return outgoing

    def open(self) -> None:
        """Restore secrets and take the masks out of the sums."""
        self.lose_unless(len(self.released) >= self.epoch.threshold)
        for number in [number for number in self.numbers if number not in self.lost]:
            try:
                secrets = {owner: self.restore(owner) for owner in self.order.committee(number)}
            except Refused:
                self.lost.add(number)
                continue
            sums = self.opened(number, secrets)
            if self.is_possible(number, sums):
                self.sums[number] = sums
            else:
                self.lost.add(number)

    def restore(self, owner: int) -> bytes:
        """Restore the private seed of a survivor, the mask secret of a dropout."""
        p, number = self.parameters, self.order.round_number
        shares = {self.epoch.place(holder): given[owner] for holder, given in self.released.items() if owner in given}
        secret, false = sharing.restore(shares, self.epoch.threshold)
        if owner in self.survivors:
            genuine = keys.seed_commitment(secret, p.run, number, owner) == self.heads[owner][32:]
        else:
            genuine = keys.public_key(keys.mask_private(secret, p.run, number, owner)) == self.heads[owner][:32]
        demand(genuine, "InvalidShare", "a secret that is not genuine")
        self.false |= {(self.epoch.pod.users[place], owner) for place in false}
        return secret

    def opened(self, number: int, secrets: Mapping[int, bytes]) -> Words:
        """Return the sum of a committee without masks."""
        p, order = self.parameters, self.order
        senders = [user for user in order.committee(number) if user in self.survivors]
        sums: Words = dict.fromkeys(range(p.served * p.width if p.public_pattern else p.dim), 0)
        for user in senders:
            for position, word in self.sent[user].items():
                sums[position] = (sums[position] + word) % p.modulus
            lay_mask(sums, self.sent[user], keys.private_mask_seed(secrets[user], order.digest, user), -1, p)
        for user in set(order.committee(number)) - set(senders):
            private = keys.mask_private(secrets[user], p.run, order.round_number, user)
            for peer in order.peers(user):
                if peer in senders:
                    agreed = keys.agree(private, self.heads[peer][:32])
                    lay_pair_mask(sums, agreed, order.digest, user, peer, -1 if peer < user else 1, p)
        return sums

    def is_possible(self, number: int, sums: Words) -> bool:
        """Tell whether honest users can have sent this."""
        p, count = self.parameters, len(set(self.order.committee(number)) & set(self.survivors))
        middle = p.length + p.digit_counts[0]
        for slot in range(p.served if p.public_pattern else 0):
            row = [sums[slot * p.width + place] for place in range(p.width)]
            weight = words.from_digits(row[p.length : middle], p.digit_bits)
            clipped = words.from_digits(row[middle:], p.digit_bits)
            if weight > count * max(1, p.max_weight) or clipped > count * p.length:
                return False
            share = weight / p.max_weight if p.max_weight else count
            if max(abs(words.signed(word, p.modulus_bits)) for word in row[: p.length]) > p.limit * share + count:
                return False
        return True


class Result(NamedTuple):
    """What the server learns."""

    survivors: list[int]
    total: list[int]
    contributors: list[int]
    weights: list[int]
    clipped: int
    lost: list[int]
    false_shares: list[list[object]]

    @staticmethod
    def of(p: Parameters, rounds: Sequence[PodRound], groups: Sequence[Pod]) -> "Result":
        """Add up what the pods have opened."""
        slices = p.committees if p.public_pattern else p.dim
        total, contributors, weights, clipped = [0] * p.dim, [0] * slices, [0] * slices, 0
        for each in rounds:
            for number, sums in each.sums.items():
                committee, senders = each.epoch.pod.first + number, set(each.epoch.pod.committees[number])
                sent = [upload for user, upload in each.sent.items() if user in senders]
                if not p.public_pattern:
                    for coordinate, word in sums.items():
                        total[coordinate] += words.signed(word, p.modulus_bits)
                        contributors[coordinate] += sum(coordinate in upload for upload in sent)
                    continue
                for slot, which in enumerate(p.slices_of(committee, each.order.round_number)):
                    row = [sums[slot * p.width + place] for place in range(p.width)]
                    start, stop = p.bounds(which)
                    for coordinate in range(start, stop):
                        total[coordinate] += words.signed(row[coordinate - start], p.modulus_bits)
                    middle = p.length + p.digit_counts[0]
                    contributors[which] += len(sent)
                    weights[which] += words.from_digits(row[p.length : middle], p.digit_bits)
                    clipped += words.from_digits(row[middle:], p.digit_bits)
        running = {each.epoch.pod.number: each for each in rounds}
        lost = [
            pod.first + number
            for pod in groups
            for number in (running[pod.number].lost if pod.number in running else range(len(pod.committees)))
        ]
        false: dict[int, list[int]] = {}
        for holder, owner in sorted(pair for each in rounds for pair in each.false):
            false.setdefault(holder, []).append(owner)
        return Result(
            sorted(user for each in rounds for user in each.survivors),
            total,
            contributors,
            weights,
            clipped,
            sorted(lost),
            [[holder, owners] for holder, owners in sorted(false.items())],
        )
