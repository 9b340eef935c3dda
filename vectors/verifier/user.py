"""A user: the epoch (7), packages (8), and a round stage by stage (14 to 20)."""

from collections.abc import Callable, Sequence
from math import comb

from vectors.verifier import keys, locations, messages, sharing, words
from vectors.verifier.draws import Juror, Roster, read_plain_draw, read_proof
from vectors.verifier.errors import Refused, demand
from vectors.verifier.hashing import cut, digest, little_endian
from vectors.verifier.masks import Words, drawn_by, lay_mask, lay_pair_mask
from vectors.verifier.messages import Message
from vectors.verifier.parameters import Parameters
from vectors.verifier.pods import Epoch, Order, extended
from vectors.verifier.sharing import SHARE

SEALED = 48
HEAD = 64
POLICY_MIN_SURVIVORS = 2  # The reference's default policy, under which the vectors were made.
UPLOAD, CONFIRM, UNMASK, OVER = range(4)


class Package:
    """What the owner of a package keeps."""

    def __init__(self, mask_secret: bytes, private_seed: bytes, head: bytes, own: bytes, message: bytes) -> None:
        self.mask_secret, self.private_seed = mask_secret, private_seed
        self.head, self.own, self.message = head, own, message


class User:
    """A user of a run: takes the server's messages, and gives the answers."""

    def __init__(
        self,
        p: Parameters,
        number: int,
        randomness: Sequence[bytes],
        secrets: keys.RunKeys | None = None,
        roster: Roster | None = None,
    ) -> None:
        self.parameters, self.number, self.roster, self.secrets = p, number, roster, secrets
        self.randomness = list(randomness)
        self.juror = Juror(p, number, secrets) if secrets else None
        self.sealing_private = self.nonce = b""
        self.epoch: Epoch | None = None
        self.epoch_number = 0
        self.last_draw = 0
        self.round_number, self.answered = 0, -1  # The last round seen, and the last stage answered in it.
        self.order: Order | None = None
        self.sealed: dict[int, bytes] = {}
        self.packages: dict[int, Package] = {}
        self.dealt: set[int] = set()
        self.settled = b""
        self.chain, self.known = b"", -1
        self.pending: dict[int, bytes] = {}  # Uploads whose round is not declared yet, with the set answered for.
        self.uploads = self.exclusions = 0
        self.stopped = False
        self.last_request = b""

    def draw(self, size: int) -> bytes:
        """Draw random bytes."""
        drawn = self.randomness.pop(0)
        demand(len(drawn) == size, "InvalidInput", "randomness of another size")
        return drawn

    def message(self, name: str, round_number: int, view: bytes, *fields: bytes) -> bytes:
        """Write a message of this user."""
        return messages.encode(name, round_number, view[:8], little_endian(self.number, 4), *fields)

    # The epoch

    def advertise_keys(self) -> bytes:
        """ADVERTISE_KEYS."""
        if not self.nonce:
            self.epoch_number += 1
            self.sealing_private, self.nonce = self.draw(32), self.draw(16)
            self.epoch, self.order, self.packages, self.dealt = None, None, {}, set()
        key = keys.public_key(self.sealing_private)
        return self.message("advertise keys", self.epoch_number, self.parameters.digest, key, self.nonce)

    def join(self, message: Message) -> None:
        """Take the epoch keys, in the page's order."""
        p, fields = self.parameters, message.fields
        demand(message.view == p.digest[:8], "WrongView", "other parameters")
        demand(message.round_number == self.epoch_number and self.nonce != b"", "WrongStage", "no epoch is awaited")
        demand(fields["first_round"] > self.round_number, "WrongRound", "an epoch that begins in the past")
        if self.roster:
            drawn = read_proof(p, self.roster, fields["draw"], self.last_draw)
        else:
            drawn = read_plain_draw(p, fields["draw"], self.number, self.nonce)
        pod = next((pod for pod in drawn.pods if self.number in pod.users), None)
        if pod is None:
            raise Refused("PolicyViolation", "in no group")
        epoch = Epoch(p, message, drawn.seed, pod)
        own = keys.public_key(self.sealing_private)
        demand(epoch.key_of.get(self.number) == own, "InvalidKey", "another sealing key than was sent")
        enough = len(epoch.partners(self.number)) + 1 >= epoch.threshold
        demand(enough, "PolicyViolation", "too few holders")
        self.first_chains = {partner: self.chain_with(epoch, partner) for partner in epoch.partners(self.number)}
        self.epoch, self.nonce, self.last_draw = epoch, b"", drawn.number
        self.round_number, self.answered = epoch.first_round - 1, OVER
        self.chain, self.known, self.pending = epoch.digest, epoch.first_round - 1, {}

    def chain_with(self, epoch: Epoch, partner: int) -> bytes:
        """Start the chain with a partner."""
        agreed = keys.agree(self.sealing_private, epoch.key_of[partner])
        if self.roster and self.secrets:
            agreed += keys.agree(self.secrets.run_private, self.roster.users[partner].run_key)
        return keys.first_chain(agreed, epoch.digest, self.number, partner)

    def secret_with(self, partner: int, round_number: int) -> bytes:
        """Return the secret of a round with a partner."""
        rounds = round_number - self.in_epoch().first_round
        return keys.round_secret(keys.chain_after(self.first_chains[partner], rounds))

    def in_epoch(self) -> Epoch:
        """Return the epoch, if there is one."""
        if self.epoch is None:
            raise Refused("WrongStage", "no epoch yet")
        return self.epoch

    # Packages

    def share_keys(self, round_number: int) -> list[bytes]:
        """Deal the packages of the next two rounds that were not dealt yet."""
        if round_number > self.round_number:
            self.see(round_number)
        fresh = [r for r in (self.round_number + 1, self.round_number + 2) if r not in self.dealt]
        for number in fresh:
            self.packages[number] = self.deal(number)
            self.dealt.add(number)
        return [self.packages[number].message for number in fresh]

    def see(self, round_number: int) -> None:
        """Forget everything of earlier rounds."""
        self.packages = {r: package for r, package in self.packages.items() if r >= round_number}
        self.round_number, self.answered, self.order = round_number, -1, None

    def deal(self, round_number: int) -> Package:
        """Deal a package."""
        p, epoch = self.parameters, self.in_epoch()
        mask_secret, private_seed, seed = self.draw(16), self.draw(16), self.draw(32)
        head = keys.head(mask_secret, private_seed, p.run, round_number, self.number)
        holders = sorted([self.number, *epoch.partners(self.number)])
        places = [epoch.place(holder) for holder in holders]
        shares = sharing.split([mask_secret, private_seed], places, epoch.threshold, seed)
        sealed = b"".join(
            keys.seal(self.secret_with(holder, round_number), self.number, holder, shares[epoch.place(holder)])
            for holder in holders
            if holder != self.number
        )
        message = self.message("share keys", round_number, epoch.digest, head, sealed)
        return Package(mask_secret, private_seed, head, shares[epoch.place(self.number)], message)

    # A round

    def receive(self, data: bytes, terms: bytes) -> None:
        """Check a message of the server; what can be refused is refused here."""
        if data[1:-8] and self.juror and is_draw(data):
            self.juror.answer(data)
            return
        demand(not self.stopped, "WronglyExcluded", "stopped for good")
        message = messages.decode(data, messages.FROM_SERVER)
        if data == self.last_request:
            return  # It gets the same bytes again.
        take: dict[str, Callable[[Message], object]] = {
            "epoch keys": self.join,
            "order": lambda message: self.accept(message, terms),
            "confirm request": self.settle,
            "unmask request": self.release,
        }
        take[message.name](message)

    def demand_open(self, message: Message, stage: int) -> None:
        """Positions strictly increase."""
        now = (message.round_number, stage)
        demand(now > (self.round_number, self.answered), "AlreadyAnswered", "over for this user")

    def accept(self, message: Message, terms: bytes) -> tuple[Order, dict[int, bytes]]:
        """Check an order, and mark the round as uploaded; return the heads of the own committee."""
        self.demand_open(message, UPLOAD)
        fields, epoch = message.fields, self.in_epoch()
        demand(message.view == epoch.digest[:8], "WrongView", "another epoch")
        judged = self.judge(fields["history"], message.round_number)
        package = self.packages.get(message.round_number)
        if package is None:
            raise Refused("WrongStage", "no package was dealt for this round")
        order = Order(epoch, message.round_number, epoch.read(fields["members"]), fields["terms"], judged[0])
        members = order.members
        demand(self.number in members, "PolicyViolation", "its package is not used")
        demand(all(user in epoch.key_of for user in members), "PolicyViolation", "a member without a key")
        demand(len(members) >= epoch.threshold, "PolicyViolation", "too few members")
        demand(fields["terms"] == terms, "WrongView", "other terms")
        own = epoch.pod.committee_of(self.number)
        committee = order.committee(own)
        heads = dict(zip(committee, cut(fields["heads"], HEAD, len(committee), "heads"), strict=True))
        demand(heads[self.number] == package.head, "InvalidKey", "another head than was dealt")
        stated = cut(fields["committees"], 32, len(epoch.pod.committees), "heads digests")[own]
        demand(order.heads_digest(own, heads) == stated, "WrongView", "another heads digest")
        least = max(epoch.min_survivors[own], POLICY_MIN_SURVIVORS)
        demand(len(committee) >= least, "PolicyViolation", "too few in the committee")
        enough = len(order.peers(self.number)) + 1 >= min(least, epoch.threshold)
        demand(enough, "PolicyViolation", "too few peers")
        partners = order.partners(self.number)
        sealed = dict(zip(partners, cut(fields["shares"], SEALED, len(partners), "shares"), strict=True))
        for peer in order.peers(self.number):
            keys.demand_no_low_order(heads[peer][:32])
        order.settle(fields["committees"])
        if message.round_number > self.round_number:
            self.see(message.round_number)
        self.order, self.sealed, self.answered = order, sealed, UPLOAD
        self.chain, self.known, self.uploads, self.exclusions = judged
        self.pending = {order.round_number: b""}
        return order, heads

    def judge(self, history: bytes, round_number: int) -> tuple[bytes, int, int, int]:
        """Read declared survivors; return chain, last known round, uploads and exclusions, or stop for good."""
        epoch = self.in_epoch()
        size = 8 + (len(epoch.pod.users) + 7) // 8
        entries = cut(history, size, len(history) // size, "history")
        numbers = [int.from_bytes(entry[:8], "little") for entry in entries]
        demand(numbers == sorted(set(numbers)), "MalformedMessage", "rounds out of order")
        sets = [epoch.read(entry[8:]) for entry in entries]
        demand(all(number < round_number for number in numbers), "MalformedMessage", "a round that is to come")
        chain, known, uploads, exclusions = self.chain, self.known, self.uploads, self.exclusions
        pending, wrong = dict(self.pending), False
        for number, entry, survivors in zip(numbers, entries, sets, strict=True):
            if number <= known:
                continue
            chain, known = extended(chain, number, entry[8:]), number
            if number in pending:
                answered = pending.pop(number)
                uploads += 1
                exclusions += self.number not in survivors
                wrong |= answered not in (b"", entry[8:])
        demand(wrong or not any(pending.values()), "PolicyViolation", "a round that it helped to open is missing")
        wrong |= exclusions >= 3 and tail(uploads, exclusions, self.parameters.dropout) <= 2**-20
        self.stopped = wrong
        demand(not wrong, "WronglyExcluded", "left out, or other survivors than it knows")
        return chain, known, uploads, exclusions

    def upload(self, data: bytes, terms: bytes, integers: Callable[[list[int]], Words]) -> bytes:
        """UPLOAD: mask the integers. `integers` returns them, given the coordinates that `pairwise` has drawn."""
        p = self.parameters
        order, heads = self.accept(messages.decode(data, messages.FROM_SERVER), terms)
        package, number = self.packages[order.round_number], order.round_number
        self.draw(16)
        private = keys.mask_private(package.mask_secret, p.run, number, self.number)
        agreed = {peer: keys.agree(private, heads[peer][:32]) for peer in order.peers(self.number)}
        drawn: set[int] = set()
        if not p.public_pattern:
            seeds = [keys.pair_seeds(secret, order.digest, self.number, peer) for peer, secret in agreed.items()]
            drawn = {coordinate for _, pattern_seed in seeds for coordinate in drawn_by(pattern_seed, p)}
        sums = integers(sorted(drawn))
        lay_mask(sums, sums, keys.private_mask_seed(package.private_seed, order.digest, self.number), 1, p)
        for peer, secret in agreed.items():
            lay_pair_mask(sums, secret, order.digest, self.number, peer, 1 if self.number < peer else -1, p)
        packed = words.pack([sums[position] % p.modulus for position in sorted(sums)], p.modulus_bits)
        coded = b"" if p.public_pattern else locations.encode(sorted(sums), p.dim)
        tags = b"".join(
            keys.order_tag(self.secret_with(partner, number), self.number, partner, order.digest)
            for partner in order.partners(self.number)
        )
        return self.message("upload", number, order.digest, coded, packed, tags)

    def due(self, message: Message, stage: int) -> Order:
        """Return the order, if this stage of it is due."""
        self.demand_open(message, stage)
        demand(message.round_number == self.round_number, "WrongRound", "another round")
        due = UPLOAD
        if self.order is not None:
            due = CONFIRM if self.parameters.confirm and self.answered == UPLOAD else UNMASK
        demand(stage == due and self.order is not None, "WrongStage", "another stage is due")
        assert self.order is not None
        demand(message.view == self.order.digest[:8], "WrongView", "another order")
        return self.order

    def read_survivors(self, order: Order, data: bytes) -> list[int]:
        """Check a set of survivors."""
        survivors = order.epoch.read(data)
        demand(set(survivors) <= set(order.members), "PolicyViolation", "a survivor that is no member")
        demand(self.number in survivors, "PolicyViolation", "not among the survivors")
        demand(len(survivors) >= order.epoch.threshold, "PolicyViolation", "too few survivors")
        return survivors

    def settle(self, message: Message) -> bytes:
        """CONFIRM."""
        order, data = self.due(message, CONFIRM), message.fields["survivors"]
        survivors = self.read_survivors(order, data)
        confirmed = digest("confirmed", order.digest, data)
        others = [partner for partner in order.partners(self.number) if partner in survivors]
        tags = [
            keys.confirm_tag(self.secret_with(other, order.round_number), self.number, other, confirmed)
            for other in others
        ]
        self.settled, self.answered = data, CONFIRM
        self.pending = {order.round_number: data}
        return self.message("confirm", order.round_number, order.digest, b"".join(tags))

    def release(self, message: Message) -> bytes:
        """UNMASK: a refusal uses it up."""
        order = self.due(message, UNMASK)
        try:
            answer = self.released(order, message)
        except Refused as refused:
            if refused.error == "PolicyViolation":
                self.answered, self.order = UNMASK, None
            raise
        self.answered, self.order = UNMASK, None
        self.pending = {order.round_number: message.fields["survivors"]}
        return answer

    def released(self, order: Order, message: Message) -> bytes:
        """The rule of release."""
        fields, epoch, number = message.fields, order.epoch, order.round_number
        survivors = self.read_survivors(order, fields["survivors"])
        if self.parameters.confirm:
            demand(fields["survivors"] == self.settled, "PolicyViolation", "other survivors than were settled for")
            confirmers = epoch.read(fields["confirmers"]) if fields["confirmers"] else []
            made = cut(fields["confirmations"], keys.TAG, len(confirmers), "confirmations")
            confirmed = digest("confirmed", order.digest, fields["survivors"])
            valid = 1 + sum(
                user in self.first_chains
                and tag == keys.confirm_tag(self.secret_with(user, number), user, self.number, confirmed)
                for user, tag in zip(confirmers, made, strict=True)
            )
            demand(valid >= epoch.threshold, "PolicyViolation", "too few confirmations")
        partners = [partner for partner in order.partners(self.number) if partner in survivors]
        shown = set(survivors)
        for user, tag in zip(partners, cut(fields["tags"], keys.TAG, len(partners), "tags"), strict=True):
            if tag != keys.order_tag(self.secret_with(user, number), user, self.number, order.digest):
                shown.remove(user)
        given: dict[int, bytes] = {}
        for place, least in enumerate(epoch.min_survivors):
            left = [user for user in order.committee(place) if user in survivors]
            needed = max(least, POLICY_MIN_SURVIVORS)
            joined = all(len(part) >= needed for part in order.parts(left))
            if len(left) >= needed and shown.issuperset(left) and joined:
                for owner in order.committee(place):
                    pair = self.pair_of(owner, order)
                    if pair:
                        given[owner] = pair[SHARE:] if owner in survivors else pair[:SHARE]
        demand(bool(given), "PolicyViolation", "nothing may be released")
        shares = b"".join(given[owner] for owner in sorted(given))
        return self.message("unmask", number, order.digest, epoch.write(list(given)), shares)

    def pair_of(self, owner: int, order: Order) -> bytes:
        """Return the pair of shares of an owner; nothing if there is none or it does not open."""
        if owner == self.number:
            return self.packages[order.round_number].own
        if owner not in self.sealed:
            return b""
        try:
            secret = self.secret_with(owner, order.round_number)
            pair = keys.unseal(secret, owner, self.number, self.sealed[owner])
            sharing.elements(pair)
        except Refused:
            return b""
        return pair


def is_draw(data: bytes) -> bool:
    """Tell whether a message is a draw request."""
    try:
        messages.decode_draw(data, "draw request")
    except Refused:
        return False
    return True


def tail(count: int, least: int, rate: float) -> float:
    """Return Pr[Binomial(count, rate) ≥ least]."""
    return sum(comb(count, k) * rate**k * (1 - rate) ** (count - k) for k in range(least, count + 1))
