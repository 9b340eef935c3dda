"""A user: the epoch (6), key packages (7), and a round stage by stage (12 to 14, 17)."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from vectors.verifier import keys, locations, messages, sharing, words
from vectors.verifier.epochs import Epoch, Header
from vectors.verifier.errors import Refused, demand
from vectors.verifier.groups import draw_groups, epoch_seed
from vectors.verifier.hashing import cut, little_endian
from vectors.verifier.masks import Words, drawn_by, lay_mask, lay_pair_mask
from vectors.verifier.messages import Message
from vectors.verifier.parameters import Parameters
from vectors.verifier.sharing import SHARE

SEALED = 48
NOTHING, HEADER, UPLOAD, UNMASK = range(4)


class KeyPackage(NamedTuple):
    """What the owner of a key package keeps."""

    mask_secret: bytes
    private_seed: bytes
    mask_key: bytes
    own: bytes
    message: bytes


class User:
    """A user of a run: takes the server's messages, and gives the answers."""

    def __init__(
        self,
        p: Parameters,
        number: int,
        randomness: Sequence[bytes],
        roster: keys.Roster | None = None,
        run_private: bytes = b"",
    ) -> None:
        self.parameters, self.number, self.roster, self.run_private = p, number, roster, run_private
        self.randomness = list(randomness)
        self.sealing_private = b""
        self.epoch: Epoch | None = None
        self.epoch_number = 0
        self.round_number, self.progress = 0, NOTHING  # The last round seen, and how far it is in it.
        self.header: Header | None = None
        self.sealed: dict[int, bytes] = {}
        self.packages: dict[int, KeyPackage] = {}
        self.dealt: set[int] = set()
        self.last_request = b""

    def draw(self, size: int) -> bytes:
        """Draw random bytes."""
        drawn = self.randomness.pop(0)
        demand(len(drawn) == size, "InvalidInput", "randomness of another size")
        return drawn

    def message(self, name: str, round_number: int, bound_to: bytes, *fields: bytes) -> bytes:
        """Write a message of this user."""
        return messages.encode(name, round_number, bound_to[:8], little_endian(self.number, 4), *fields)

    # The epoch

    def advertise_keys(self, epoch_number: int) -> bytes:
        """ADVERTISE_KEYS."""
        waiting = epoch_number == self.epoch_number and self.sealing_private != b""
        demand(waiting or epoch_number > self.epoch_number, "AlreadyAnswered", "an epoch that is over")
        if not waiting:
            epoch_seed(self.parameters, epoch_number, self.roster)
            self.epoch_number, self.sealing_private = epoch_number, self.draw(32)
            self.epoch, self.header, self.packages, self.dealt = None, None, {}, set()
        key = keys.public_key(self.sealing_private)
        return self.message("advertise keys", self.epoch_number, self.parameters.digest, key)

    def join(self, message: Message) -> None:
        """Take the epoch keys, in the page's order."""
        p, fields = self.parameters, message.fields
        demand(message.binding == p.digest[:8], "WrongBinding", "other parameters")
        awaited = message.round_number == self.epoch_number and self.sealing_private != b""
        demand(awaited, "WrongStage", "no epoch is awaited")
        demand(fields["first_round"] > self.round_number, "WrongRound", "an epoch that begins in the past")
        seed = epoch_seed(p, self.epoch_number, self.roster)
        group = next(group for group in draw_groups(p, seed) if self.number in group.users)
        epoch = Epoch(p, message, seed, group)
        own = keys.public_key(self.sealing_private)
        demand(epoch.key_of.get(self.number) == own, "InvalidKey", "another sealing key than was sent")
        enough = len(epoch.partners(self.number)) + 1 >= p.threshold
        demand(enough, "PolicyViolation", "too few holders")
        self.first_ratchets = {partner: self.ratchet_with(epoch, partner) for partner in epoch.partners(self.number)}
        self.epoch, self.sealing_private = epoch, b""
        self.round_number, self.progress = epoch.first_round - 1, UNMASK

    def ratchet_with(self, epoch: Epoch, partner: int) -> bytes:
        """Start the ratchet with a partner."""
        agreed = keys.agree(self.sealing_private, epoch.key_of[partner])
        if self.roster:
            agreed += keys.agree(self.run_private, self.roster.users[partner].run_key)
        return keys.first_ratchet(agreed, epoch.digest, self.number, partner)

    def secret_with(self, partner: int, round_number: int) -> bytes:
        """Return the secret of a round with a partner."""
        rounds = round_number - self.in_epoch().first_round
        return keys.round_secret(keys.ratchet_after(self.first_ratchets[partner], rounds))

    def in_epoch(self) -> Epoch:
        """Return the epoch, if there is one."""
        if self.epoch is None:
            raise Refused("WrongStage", "no epoch yet")
        return self.epoch

    # Key packages

    def share_keys(self, round_number: int) -> list[bytes]:
        """Make the key packages of the next two rounds that were not made yet."""
        self.see(round_number)
        fresh = [r for r in (self.round_number + 1, self.round_number + 2) if r not in self.dealt]
        for number in fresh:
            self.packages[number] = self.make_package(number)
            self.dealt.add(number)
        return [self.packages[number].message for number in fresh]

    def see(self, round_number: int) -> None:
        """Forget everything of rounds before a new one."""
        if round_number > self.round_number:
            self.packages = {r: package for r, package in self.packages.items() if r >= round_number}
            self.round_number, self.progress, self.header = round_number, NOTHING, None

    def make_package(self, round_number: int) -> KeyPackage:
        """Make a key package."""
        p, epoch = self.parameters, self.in_epoch()
        mask_secret, private_seed, seed = self.draw(16), self.draw(16), self.draw(32)
        mask_key = keys.public_key(keys.mask_private(mask_secret, p.run, round_number, self.number))
        commitment = keys.seed_commitment(private_seed, p.run, round_number, self.number)
        holders = sorted([self.number, *epoch.partners(self.number)])
        shares = sharing.split([mask_secret, private_seed], [*map(epoch.index, holders)], p.threshold, seed)
        sealed = b"".join(
            keys.seal(self.secret_with(holder, round_number), self.number, holder, shares[epoch.index(holder)])
            for holder in holders
            if holder != self.number
        )
        message = self.message("share keys", round_number, epoch.digest, mask_key, commitment, sealed)
        return KeyPackage(mask_secret, private_seed, mask_key, shares[epoch.index(self.number)], message)

    # A round

    def receive(self, data: bytes, context: bytes) -> None:
        """Check a message of the server; what can be refused is refused here."""
        message = messages.decode(data, messages.FROM_SERVER)
        if data == self.last_request:
            return  # It gets the same bytes again.
        take: dict[str, Callable[[Message], object]] = {
            "epoch keys": self.join,
            "round header": lambda message: self.agreed_in(self.accept(message, context)),
            "unmask request": self.release,
        }
        take[message.name](message)

    def demand_open(self, message: Message, progress: int) -> None:
        """Positions strictly increase."""
        now = (message.round_number, progress)
        demand(now > (self.round_number, self.progress), "AlreadyAnswered", "over for this user")

    def accept(self, message: Message, context: bytes) -> Header:
        """Check a header and put it on record."""
        self.demand_open(message, HEADER)
        epoch, package, p = self.in_epoch(), self.packages.get(message.round_number), self.parameters
        if package is None:
            raise Refused("WrongStage", "no key package was made for this round")
        demand(message.binding == epoch.digest[:8], "WrongBinding", "another epoch")
        header = Header(epoch, message)
        demand(self.number in header.members, "PolicyViolation", "its package is not used")
        demand(all(user in epoch.key_of for user in header.members), "PolicyViolation", "a member without a key")
        demand(header.mask_key[self.number] == package.mask_key, "InvalidKey", "another mask key than was sent")
        for key in header.mask_key.values():
            keys.demand_no_low_order(key)
        demand(header.context == context, "WrongBinding", "another context")
        demand(len(header.members) >= p.quorum, "PolicyViolation", "too few members")
        partners = header.partners(self.number)
        demand(len(partners) + 1 >= p.threshold, "PolicyViolation", "too few partners")
        sealed = dict(zip(partners, cut(message.fields["shares"], SEALED, len(partners), "shares"), strict=True))
        self.see(message.round_number)
        self.header, self.sealed, self.progress = header, sealed, HEADER
        return header

    def agreed_in(self, header: Header) -> dict[int, bytes]:
        """Return what the mask keys agree on, by partner."""
        package = self.packages[header.round_number]
        private = keys.mask_private(package.mask_secret, self.parameters.run, header.round_number, self.number)
        return {partner: keys.agree(private, header.mask_key[partner]) for partner in header.partners(self.number)}

    def upload(self, data: bytes, context: bytes, integers: Callable[[list[int]], list[int]]) -> bytes:
        """UPLOAD: mask integers. `integers` returns those of the coordinates given, and the digits behind them."""
        p = self.parameters
        header = self.accept(messages.decode(data, messages.FROM_SERVER), context)
        package, number, agreed = self.packages[header.round_number], header.round_number, self.agreed_in(header)
        if p.public_pattern:
            sums: Words = dict(enumerate(integers(header.coordinates)))
            coded = b""
        else:
            seeds = [keys.pair_seeds(secret, header.digest, self.number, peer) for peer, secret in agreed.items()]
            drawn = sorted({coordinate for _, pattern_seed in seeds for coordinate in drawn_by(pattern_seed, p)})
            sums = dict(zip(drawn, integers(drawn), strict=True))
            coded = locations.encode(drawn, p.dim)
        self.draw(16)  # The rounding seed.
        lay_mask(sums, sums, keys.private_mask_seed(package.private_seed, header.digest, self.number), 1, p)
        for peer, secret in agreed.items():
            lay_pair_mask(sums, secret, header.digest, self.number, peer, 1 if self.number < peer else -1, p)
        packed = words.pack([sums[position] % p.modulus for position in sorted(sums)], p.modulus_bits)
        tags = b"".join(
            keys.header_tag(self.secret_with(partner, number), self.number, partner, header.digest)
            for partner in header.partners(self.number)
        )
        self.progress = UPLOAD
        return self.message("upload", number, header.digest, coded, packed, tags)

    def release(self, message: Message) -> bytes:
        """UNMASK: a refusal uses it up."""
        self.demand_open(message, UNMASK)
        demand(message.round_number == self.round_number, "WrongRound", "another round")
        if self.header is None or self.progress != UPLOAD:
            raise Refused("WrongStage", "nothing was uploaded")
        header = self.header
        demand(message.binding == header.digest[:8], "WrongBinding", "another header")
        try:
            answer = self.released(header, message)
        except Refused as refused:
            if refused.error == "PolicyViolation":
                self.progress, self.header = UNMASK, None
            raise
        self.progress, self.header = UNMASK, None
        return answer

    def released(self, header: Header, message: Message) -> bytes:
        """The rule of release."""
        fields, epoch, number, p = message.fields, header.epoch, header.round_number, self.parameters
        declared = epoch.read(fields["survivors"])
        demand(set(declared) <= set(header.members), "PolicyViolation", "a survivor that is no member")
        demand(self.number in declared, "PolicyViolation", "not among the survivors")
        partners = [partner for partner in header.partners(self.number) if partner in declared]
        tags = cut(fields["tags"], keys.TAG, len(partners), "tags")
        bad = {
            partner
            for partner, tag in zip(partners, tags, strict=True)
            if tag != keys.header_tag(self.secret_with(partner, number), partner, self.number, header.digest)
        }
        survivors = [user for user in declared if user not in bad]
        demand(len(partners) - len(bad) + 1 >= p.threshold, "PolicyViolation", "too few with a valid tag")
        if p.neighbours:
            joined = min(len(part) for part in header.parts(survivors))
            demand(joined >= p.quorum, "PolicyViolation", "too few that masks join")
        given: dict[int, bytes] = {}
        for owner in sorted([self.number, *header.partners(self.number)]):
            pair = self.pair_of(owner, header)
            if pair:
                given[owner] = pair[SHARE:] if owner in survivors else pair[:SHARE]
        owners, shares = epoch.write(given), b"".join(given.values())
        return self.message("unmask", number, header.digest, epoch.write(survivors), owners, shares)

    def pair_of(self, owner: int, header: Header) -> bytes:
        """Return the pair of shares of an owner; nothing if it does not open."""
        if owner == self.number:
            return self.packages[header.round_number].own
        try:
            secret = self.secret_with(owner, header.round_number)
            pair = keys.unseal(secret, owner, self.number, self.sealed[owner])
            sharing.elements(pair)
        except Refused:
            return b""
        return pair
