"""The server, stage by stage (5, 13, 14)."""

from collections.abc import Sequence
from typing import NamedTuple

from vectors.verifier import keys, locations, messages, words
from vectors.verifier.errors import demand
from vectors.verifier.graphs import Directory, Entry, members_context, nonce_fits, read_directory, share_graph
from vectors.verifier.hashing import cut, read_set_of_users, set_of_users
from vectors.verifier.parameters import Parameters
from vectors.verifier.patterns import Pattern
from vectors.verifier.sharing import SHARE, combine, elements
from vectors.verifier.user import SEALED, TAG, Blocks, lay_mask

Outgoing = list[tuple[list[int], bytes]]


class Result(NamedTuple):
    """What the server learns."""

    survivors: list[int]
    total: list[int]
    contributors_per_block: list[int]
    weight_per_block: list[int]
    clipped_per_block: list[int]


class Server:
    """The server of one round: takes messages of users, and ends stages."""

    directory: Directory
    neighbours: dict[int, list[int]]
    sealed: dict[int, dict[int, bytes]]
    members: list[int]
    context: bytes
    pattern: Pattern
    survivors: list[int]
    result: Result

    def __init__(self, parameters: Parameters) -> None:
        p = self.parameters = parameters
        confirm = ["confirm"] if p.authenticated else []
        self.stages = ["advertise keys", "share keys", "upload", *confirm, "unmask"]
        self.may_send = list(range(p.clients))
        self.accepted: dict[int, messages.Message] = {}  # Of the present stage.
        self.keys: set[bytes] = set()
        self.seed_commitments: dict[int, bytes] = {}
        self.blocks_of: dict[int, list[int]] = {}
        self.sums: Blocks = {block: [0] * p.width for block in range(p.blocks)}

    def receive(self, data: bytes, transport_sender: int | None = None) -> None:
        """Check a message in the page's order and take it."""
        message = messages.decode(data, messages.FROM_USERS)
        demand(message.round_number == self.parameters.round_number, "WrongRound", "another round")
        demand(message.view == self.parameters.view, "WrongView", "another view")
        demand(self.stages[:1] == [message.name], "WrongStage", f"{message.name} in another stage")
        known = message.sender in self.may_send and transport_sender in (None, message.sender)
        demand(known, "UnknownSender", f"user {message.sender} may not send")
        demand(message.sender not in self.accepted, "DuplicateMessage", "a second message")
        take = {
            "advertise keys": self.take_keys,
            "share keys": self.take_shares,
            "upload": self.take_upload,
            "confirm": self.take_confirmation,
            "unmask": self.take_unmask,
        }
        take[message.name](message.sender, message.fields)
        self.accepted[message.sender] = message

    def close(self) -> Outgoing:
        """End the stage; return what is sent to whom."""
        senders = sorted(self.accepted)
        demand(len(senders) >= self.parameters.threshold, "ThresholdNotMet", f"{len(senders)} messages")
        end = {
            "advertise keys": self.send_directory,
            "share keys": self.send_deliveries,
            "upload": self.send_survivors,
            "confirm": self.send_confirmations,
            "unmask": self.open,
        }
        outgoing = end[self.stages.pop(0)](senders)
        self.may_send = senders
        self.accepted = {}
        return outgoing

    def field(self, name: str, senders: Sequence[int]) -> list[bytes]:
        """Return one field of the accepted messages, sorted by sender."""
        return [self.accepted[user].fields[name] for user in senders]

    def message(self, name: str, *fields: bytes) -> bytes:
        """Write a message of the server."""
        return messages.encode(name, self.parameters.round_number, self.parameters.view, *fields)

    def set_of(self, users: Sequence[int]) -> bytes:
        """Write a set of users."""
        return set_of_users(users, self.parameters.clients)

    def take_keys(self, _sender: int, fields: dict[str, bytes]) -> None:
        """ADVERTISE_KEYS: keys are new and no low-order points."""
        own = {fields["sealing_key"], fields["mask_key"]}
        demand(len(own) == 2 and not own & self.keys, "InvalidKey", "a key that occurs twice")
        for key in own:
            keys.demand_no_low_order(key)
        self.keys |= own

    def send_directory(self, senders: list[int]) -> Outgoing:
        """Send everybody's keys to all advertisers."""
        p = self.parameters
        users = self.set_of(senders)
        entries = b"".join(b"".join(self.field(name, [u])[0] for name in Entry._fields) for u in senders)
        self.directory = read_directory(p.digest, p.clients, users, entries)
        self.neighbours = share_graph(senders, self.directory.digest, p.neighbours)
        return [(senders, self.message("key directory", users, entries))]

    def take_shares(self, sender: int, fields: dict[str, bytes]) -> None:
        """SHARE_KEYS: a sealed pair per neighbour, a nonce that fits."""
        cut(fields["shares"], SEALED, len(self.neighbours[sender]), "shares")
        demand(nonce_fits(self.directory.entries[sender], fields["nonce"]), "InvalidKey", "a nonce that does not fit")

    def send_deliveries(self, senders: list[int]) -> Outgoing:
        """Sort the sealed pairs of shares by receiver."""
        users, nonces = self.set_of(senders), b"".join(self.field("nonce", senders))
        self.members, self.context = senders, members_context(self.directory.digest, users, nonces)
        self.pattern = Pattern(self.parameters, self.context, senders, self.neighbours)
        self.seed_commitments = dict(zip(senders, self.field("seed_commitment", senders), strict=True))
        sealed = {}
        for user in senders:
            pieces = cut(self.accepted[user].fields["shares"], SEALED, len(self.neighbours[user]), "shares")
            sealed[user] = dict(zip(self.neighbours[user], pieces, strict=True))
        outgoing: Outgoing = []
        for receiver in senders:
            pairs = b"".join(sealed[u][receiver] for u in self.neighbours[receiver] if u in sealed)
            outgoing.append(([receiver], self.message("share delivery", users, nonces, pairs)))
        return outgoing

    def take_upload(self, sender: int, fields: dict[str, bytes]) -> None:
        """UPLOAD: add the words of each block to the sums."""
        p = self.parameters
        if p.public_pattern:
            demand(not fields["locations"], "MalformedMessage", "locations with a public pattern")
            blocks = self.pattern.public_blocks(sender)
        else:
            blocks = locations.decode(fields["locations"], p.dim)
        received = words.unpack(fields["words"], p.width * len(blocks), p.modulus_bits)
        for place, block in enumerate(blocks):
            added = received[place * p.width : (place + 1) * p.width]
            self.sums[block] = [(a + b) % p.modulus for a, b in zip(self.sums[block], added, strict=True)]
        self.blocks_of[sender] = blocks

    def send_survivors(self, senders: list[int]) -> Outgoing:
        """Ask the survivors to confirm each other, or to unmask."""
        self.survivors = senders
        users = self.set_of(senders)
        if self.parameters.authenticated:
            return [(senders, self.message("confirm request", users))]
        return [(senders, self.message("unmask request", users, b"", b""))]

    def take_confirmation(self, _sender: int, fields: dict[str, bytes]) -> None:
        """CONFIRM: a tag for each other survivor."""
        cut(fields["tags"], TAG, len(self.survivors) - 1, "tags")

    def send_confirmations(self, senders: list[int]) -> Outgoing:
        """Hand each user that confirmed the tags of the others for it."""
        tags: dict[tuple[int, int], bytes] = {}
        for sender in senders:
            receivers = [user for user in self.survivors if user != sender]
            pieces = cut(self.accepted[sender].fields["tags"], TAG, len(receivers), "tags")
            tags |= {(sender, receiver): tag for receiver, tag in zip(receivers, pieces, strict=True)}
        outgoing: Outgoing = []
        for receiver in senders:
            others = [user for user in senders if user != receiver]
            theirs = b"".join(tags[sender, receiver] for sender in others)
            request = self.message("unmask request", self.set_of(self.survivors), self.set_of(others), theirs)
            outgoing.append(([receiver], request))
        return outgoing

    def take_unmask(self, sender: int, fields: dict[str, bytes]) -> None:
        """UNMASK: shares of members whose secrets the sender holds."""
        owners = read_set_of_users(fields["owners"], self.parameters.clients)
        held = {sender, *self.neighbours[sender]} & set(self.members)
        demand(set(owners) <= held, "InvalidShare", "a share that the sender does not hold")
        for share in cut(fields["shares"], SHARE, len(owners), "shares"):
            elements(share)

    def restore(self, senders: Sequence[int]) -> dict[int, bytes]:
        """Restore the private seed of each survivor and the private mask key of each dropout."""
        p = self.parameters
        shares: dict[int, dict[int, bytes]] = {member: {} for member in self.members}
        for holder in senders:
            fields = self.accepted[holder].fields
            owners = read_set_of_users(fields["owners"], p.clients)
            for owner, share in zip(owners, cut(fields["shares"], SHARE, len(owners), "shares"), strict=True):
                shares[owner][holder] = share
        secrets = {}
        for owner, given in shares.items():
            demand(len(given) >= p.threshold, "ThresholdNotMet", f"{len(given)} shares of user {owner}")
            first = sorted(given)[: p.threshold]
            secret = combine(first, [given[holder] for holder in first])
            if owner in self.survivors:
                genuine = keys.seed_commitment(p.digest, owner, secret) == self.seed_commitments[owner]
            else:
                genuine = keys.public_key(secret) == self.directory.entries[owner].mask_key
            demand(genuine, "InvalidShare", f"false shares of user {owner}")
            secrets[owner] = secret
        return secrets

    def open(self, senders: list[int]) -> Outgoing:
        """Take the masks out of the sums."""
        p = self.parameters
        for owner, secret in self.restore(senders).items():
            if owner in self.survivors:
                seed = keys.private_mask_seed(secret, self.context, owner)
                lay_mask(self.sums, self.blocks_of[owner], seed, -1, p)
                continue
            for peer in self.pattern.peers(owner):
                if peer in self.survivors:
                    agreed = keys.agree(secret, self.directory.entries[peer].mask_key)
                    mask_seed, pattern_seed = keys.pair_seeds(agreed, self.context, owner, peer)
                    blocks = self.pattern.blocks_of_pair(owner, peer, pattern_seed)
                    lay_mask(self.sums, blocks, mask_seed, -1 if peer < owner else 1, p)
        self.result = self.read_sums()
        return []

    def read_sums(self) -> Result:
        """Read values as signed integers, digits without a sign."""
        p = self.parameters
        values = [word for block in self.sums.values() for word in block[: p.length]]
        after_weight = p.length + p.digit_counts[0]
        return Result(
            self.survivors,
            [words.signed(word, p.modulus_bits) for word in values[: p.dim]],
            [sum(block in blocks for blocks in self.blocks_of.values()) for block in self.sums],
            [words.from_digits(block[p.length : after_weight], p.digit_bits) for block in self.sums.values()],
            [words.from_digits(block[after_weight:], p.digit_bits) for block in self.sums.values()],
        )
