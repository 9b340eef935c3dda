"""A user, stage by stage (11, 13, 14)."""

from collections.abc import Callable, Mapping, Sequence

from vectors.verifier import keys, locations, messages, words
from vectors.verifier.errors import Refused, demand
from vectors.verifier.graphs import Directory, Entry, read_directory, read_membership, share_graph
from vectors.verifier.hashing import cut, read_set_of_users, set_of_users
from vectors.verifier.parameters import Parameters
from vectors.verifier.patterns import Pattern
from vectors.verifier.sharing import SHARE, elements, split

SEALED = 88
TAG = 16
POLICY_MIN_SURVIVORS = 2  # The reference's default policy, under which the vectors were made.
Blocks = dict[int, list[int]]


def lay_mask(blocks: Blocks, over: Sequence[int], seed: bytes, sign: int, parameters: Parameters) -> None:
    """Add a mask to the words of some blocks, or take it out: W words per block, in increasing order."""
    stream = words.MaskStream(seed, parameters.modulus_bits)
    for block in sorted(over):
        blocks[block] = [(word + sign * stream.word()) % parameters.modulus for word in blocks[block]]


class User:
    """A user of one round: takes the server's messages, and gives the answers."""

    directory: Directory
    neighbours: dict[int, list[int]]
    shares: dict[int, bytes]
    members: list[int]
    context: bytes
    pattern: Pattern
    sealed: dict[int, bytes]
    survivors: list[int]

    def __init__(
        self,
        parameters: Parameters,
        number: int,
        randomness: Mapping[str, bytes],
        run_private: bytes = b"",
        run_keys: Sequence[bytes] = (),
    ) -> None:
        self.parameters = parameters
        self.number = number
        self.private = randomness
        self.run_private = run_private
        self.run_keys = run_keys
        self.confirmed: list[int] | None = None
        sealing_key, mask_key = (keys.public_key(randomness[name]) for name in ("sealing_private", "mask_private"))
        commitment = keys.nonce_commitment(sealing_key, mask_key, randomness["nonce"])
        self.entry = Entry(sealing_key, mask_key, commitment)
        confirm = [("confirm request", self.take_confirm_request)] if parameters.authenticated else []
        self.awaited: list[tuple[str, Callable[[messages.Message], None]]] = [
            ("key directory", self.take_directory),
            ("share delivery", self.take_delivery),
            *confirm,
            ("unmask request", self.take_unmask_request),
        ]

    def receive(self, data: bytes) -> None:
        """Check a message of the server and take it; each stage once."""
        message = messages.decode(data, messages.FROM_SERVER)
        name, take = self.awaited[0] if self.awaited else ("", None)
        if take is None or message.name != name:
            raise Refused("WrongStage", f"{message.name} when {name or 'nothing'} is awaited")
        demand(message.round_number == self.parameters.round_number, "WrongRound", "another round")
        demand(message.view == self.parameters.view, "WrongView", "another view")
        take(message)
        del self.awaited[0]

    def message(self, name: str, *fields: bytes) -> bytes:
        """Write a message of this user."""
        p = self.parameters
        return messages.encode(name, p.round_number, p.view, self.number.to_bytes(2, "little"), *fields)

    def demand_enough(self, users: Sequence[int]) -> None:
        """Refuse to take part with too few users present."""
        p = self.parameters
        least = max(p.threshold, p.clients // 2 + 1, POLICY_MIN_SURVIVORS)
        demand(len(users) >= least, "PolicyViolation", f"{len(users)} users, {least} are needed")

    def agreed_by_sealing_keys(self, peer: int) -> bytes:
        """Return the secret for sealing and confirming; with a roster it has two halves."""
        agreed = keys.agree(self.private["sealing_private"], self.directory.entries[peer].sealing_key)
        return agreed + (keys.agree(self.run_private, self.run_keys[peer]) if self.parameters.authenticated else b"")

    def advertise_keys(self) -> bytes:
        """ADVERTISE_KEYS."""
        return self.message("advertise keys", *self.entry)

    def take_directory(self, message: messages.Message) -> None:
        """Check the key directory and split both secrets."""
        p = self.parameters
        directory = read_directory(p.digest, p.clients, message.fields["users"], message.fields["entries"])
        advertisers = list(directory.entries)
        self.demand_enough(advertisers)
        demand(self.number in advertisers, "PolicyViolation", "not in the directory")
        demand(directory.entries[self.number] == self.entry, "InvalidKey", "its own entry was replaced")
        neighbours = share_graph(advertisers, directory.digest, p.neighbours)
        holders = sorted([self.number, *neighbours[self.number]])
        demand(len(holders) >= p.threshold, "PolicyViolation", "too few holders")
        for neighbour in neighbours[self.number]:
            keys.demand_no_low_order(directory.entries[neighbour].sealing_key)
            keys.demand_no_low_order(directory.entries[neighbour].mask_key)
        secrets = [self.private["mask_private"], self.private["private_seed"]]
        self.shares = split(secrets, holders, p.threshold, self.private["shamir_seed"])
        self.directory, self.neighbours = directory, neighbours

    def share_keys(self) -> bytes:
        """SHARE_KEYS."""
        commitment = keys.seed_commitment(self.parameters.digest, self.number, self.private["private_seed"])
        sealed = b"".join(map(self.seal_for, self.neighbours[self.number]))
        return self.message("share keys", commitment, self.private["nonce"], sealed)

    def seal_for(self, receiver: int) -> bytes:
        """Seal a neighbour's pair of shares."""
        agreed = self.agreed_by_sealing_keys(receiver)
        key = keys.sealing_key(agreed, self.directory.digest, self.number, receiver)
        return keys.seal(key, self.parameters.round_number, self.number, receiver, self.shares[receiver])

    def open_from(self, sender: int) -> bytes:
        """Open the pair of shares of a neighbour, or take the own one."""
        if sender == self.number:
            return self.shares[sender]
        agreed = self.agreed_by_sealing_keys(sender)
        key = keys.sealing_key(agreed, self.directory.digest, sender, self.number)
        return keys.unseal(key, self.parameters.round_number, sender, self.number, self.sealed[sender])

    def take_delivery(self, message: messages.Message) -> None:
        """Check the members and keep the sealed pairs of shares."""
        p = self.parameters
        users = message.fields["users"]
        members = read_set_of_users(users, p.clients)
        self.demand_enough(members)
        context = read_membership(self.directory, members, users, message.fields["nonces"])
        demand(self.number in members, "PolicyViolation", "not a member")
        senders = [neighbour for neighbour in self.neighbours[self.number] if neighbour in members]
        sealed = cut(message.fields["shares"], SEALED, len(senders), "shares")
        self.sealed = dict(zip(senders, sealed, strict=True))
        if p.authenticated:
            for sender in senders:
                try:
                    self.open_from(sender)
                except Refused:
                    raise Refused("PolicyViolation", f"the keys of {sender} are not proven genuine") from None
        self.members, self.context = members, context
        self.pattern = Pattern(p, context, members, self.neighbours)

    def pair_with(self, peer: int) -> tuple[bytes, list[int]]:
        """Return the mask seed of a pair and the blocks that it masks."""
        agreed = keys.agree(self.private["mask_private"], self.directory.entries[peer].mask_key)
        mask_seed, pattern_seed = keys.pair_seeds(agreed, self.context, self.number, peer)
        return mask_seed, self.pattern.blocks_of_pair(self.number, peer, pattern_seed)

    def blocks(self) -> list[int]:
        """Return the blocks that this user sends."""
        if self.parameters.public_pattern:
            return self.pattern.public_blocks(self.number)
        return sorted({block for peer in self.pattern.peers(self.number) for block in self.pair_with(peer)[1]})

    def upload(self, integers: Mapping[int, Sequence[int]]) -> bytes:
        """UPLOAD: mask the integers of each block."""
        p = self.parameters
        masked = {block: list(integers[block]) for block in self.blocks()}
        private_mask_seed = keys.private_mask_seed(self.private["private_seed"], self.context, self.number)
        lay_mask(masked, list(masked), private_mask_seed, 1, p)
        for peer in self.pattern.peers(self.number):
            mask_seed, shared = self.pair_with(peer)
            lay_mask(masked, shared, mask_seed, 1 if peer > self.number else -1, p)
        packed = words.pack([word for block in masked.values() for word in block], p.modulus_bits)
        return self.message("upload", b"" if p.public_pattern else locations.encode(list(masked), p.dim), packed)

    def read_survivors(self, data: bytes) -> list[int]:
        """Check a set of survivors."""
        p = self.parameters
        survivors = read_set_of_users(data, p.clients)
        demand(set(survivors) <= set(self.members), "PolicyViolation", "a survivor that is no member")
        demand(self.number in survivors, "PolicyViolation", "not among the survivors")
        self.demand_enough(survivors)
        least = max(p.min_survivors, POLICY_MIN_SURVIVORS)
        if p.public_pattern:
            for senders in self.pattern.senders:
                demand(len(set(senders) & set(survivors)) >= least, "PolicyViolation", "a block with too few survivors")
        return survivors

    def take_confirm_request(self, message: messages.Message) -> None:
        """Check the survivors that are to be confirmed."""
        self.confirmed = self.read_survivors(message.fields["survivors"])

    def tag(self, survivors: Sequence[int], sender: int, receiver: int) -> bytes:
        """Return the tag from sender to receiver, one of whom is this user."""
        agreed = self.agreed_by_sealing_keys(receiver if sender == self.number else sender)
        statement = keys.survivors_statement(self.context, set_of_users(survivors, self.parameters.clients))
        return keys.confirmation_tag(keys.confirm_key(agreed, self.context, sender, receiver), statement)

    def confirm(self) -> bytes:
        """CONFIRM."""
        survivors = self.confirmed or []
        tags = [self.tag(survivors, self.number, other) for other in survivors if other != self.number]
        return self.message("confirm", b"".join(tags))

    def take_unmask_request(self, message: messages.Message) -> None:
        """Check the survivors, and with a roster that enough others confirmed them."""
        p = self.parameters
        survivors = self.read_survivors(message.fields["survivors"])
        if p.authenticated:
            demand(survivors == self.confirmed, "PolicyViolation", "other survivors than were confirmed")
            confirmers = read_set_of_users(message.fields["confirmers"], p.clients)
            others = set(survivors) - {self.number}
            demand(set(confirmers) <= others, "MalformedMessage", "a confirmer that is no other survivor")
            tags = cut(message.fields["tags"], TAG, len(confirmers), "tags")
            pairs = zip(confirmers, tags, strict=True)
            valid = 1 + sum(self.tag(survivors, sender, self.number) == tag for sender, tag in pairs)
            demand(valid >= p.threshold, "PolicyViolation", "too few confirmations")
        self.survivors = survivors

    def unmask(self) -> bytes:
        """UNMASK: one share per member whose secrets this user holds, never both."""
        given = {}
        for owner in sorted([self.number, *self.sealed]):
            try:
                pair = self.open_from(owner)
                elements(pair)
            except Refused:
                continue
            given[owner] = pair[SHARE:] if owner in self.survivors else pair[:SHARE]
        return self.message("unmask", set_of_users(given, self.parameters.clients), b"".join(given.values()))
