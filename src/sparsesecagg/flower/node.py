"""What a node brings: its policy, its identity with the proof of it, its ledger, its weight. All its owner's to say.

The owner says it with `flower-supernode --node-config`. What comes with the run or from the server can't weaken it: a
policy is read from the node's own configuration and nowhere else, a node with a roster takes part in nothing that is
not bound to it, and where the ledger lies is none of the run's business. Only a roster and a run key may be named by
the run's configuration, for nodes whose owner has named none, which is what simulations need.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.constant_time import bytes_eq
from flwr.app import Context

from sparsesecagg.crypto.identity import Identity, Roster, RunKeys, RunSecret
from sparsesecagg.crypto.kdf import derive, digest
from sparsesecagg.crypto.keys import KeyAgreement, public_key
from sparsesecagg.crypto.secrets import SECRET_SIZE, AgreedSecret, PrivateKey
from sparsesecagg.flower.errors import UnprovenNode
from sparsesecagg.errors import InvalidInput, LedgerUnusable
from sparsesecagg.field import WORD_BITS
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.protocol import Policy

PREFIX = "secagg-"
ROSTER, RUN_KEY, TRUSTED = "secagg-roster", "secagg-run-key", "secagg-trusted"
LEDGER, EVALUATION = "secagg-ledger", "secagg-evaluation"
LEDGER_VARIABLE = "SPARSESECAGG_LEDGER"
"""Names the folder of the ledger where a node's configuration does not: for simulations."""

_IDENTITY = (ROSTER, RUN_KEY, TRUSTED)
_PARTITION = "{partition-id}"
_LABEL = "flower seat"

FILE: Final = "weight-rounding"
_SIZE: Final = 32
_COIN_BITS: Final = 64


@dataclass(frozen=True)
class Enrolment:
    """A node's place in a run: its number and roster, and the key that proves it."""

    identity: Identity
    run_key: PrivateKey

    @property
    def chain(self) -> bytes:
        """The tip of the node's chain of nonces, to which its memory as a juror belongs."""
        return self.identity.roster.entries[self.identity.user].chain_tip


def policy_of(context: Context) -> Policy:
    """Return the node's policy, from its own configuration over the package's defaults."""
    _refuse_unknown(context.node_config)
    settings: dict[str, Any] = {
        name: read(PREFIX + option, context.node_config[PREFIX + option])
        for option, (name, read) in _OPTIONS.items()
        if PREFIX + option in context.node_config
    }
    if _named_files(context):  # Or a server could turn authentication off by not speaking of it.
        settings["authenticated"] = True
    return Policy(**settings)


def evaluation_allowed(context: Context) -> bool:
    """Return whether the node's owner lets it answer evaluation messages, whose replies are not masked."""
    return EVALUATION not in context.node_config or _switch(EVALUATION, context.node_config[EVALUATION])


def ledger_folder(context: Context) -> Path:
    """Return the folder in which the node writes down what it has answered."""
    if LEDGER in context.node_config:
        return _path(context.node_config, LEDGER, context)
    named = os.environ.get(LEDGER_VARIABLE)
    return Path(named) if named else Path.home() / ".sparsesecagg" / "ledger"


def enrolment_of(context: Context) -> Enrolment | None:
    """Return who the node is; None if it has no roster. Raises `InvalidInput` for files that don't fit together."""
    named = _named_files(context)
    if not named:
        return None
    for needed, other in ((ROSTER, RUN_KEY), (RUN_KEY, ROSTER)):
        if needed not in named:
            raise InvalidInput(needed, f"must be named in the same configuration as {other}")
    roster = _read_roster(_path(named, ROSTER, context))
    if TRUSTED in named:
        roster.require_identities(_read_trusted(_path(named, TRUSTED, context)))
    secret = _read_run_secret(_path(named, RUN_KEY, context))
    run_key = RunKeys(secret, roster.run).run_key
    public = public_key(run_key)
    number = next((user for user, entry in enumerate(roster.entries) if entry.run_key == public), None)
    if number is None:
        raise InvalidInput(RUN_KEY, "must be the key of a user of the roster: its public half is not listed there")
    return Enrolment(Identity(number, secret, roster), run_key)


# Files


def _named_files(context: Context) -> dict[str, Any]:
    """Return the files by key: the node's own if it names any, else those that the run's configuration names."""
    own = {key: context.node_config[key] for key in _IDENTITY if key in context.node_config}
    # Apps declare the keys that a run may set, with an empty text for "none".
    return own or {key: context.run_config[key] for key in _IDENTITY if context.run_config.get(key)}


def _path(named: Mapping[str, Any], key: str, context: Context) -> Path:
    """Return a path; in a simulation, where all nodes are told the same, it may hold the number of the partition."""
    value = named[key]
    if not isinstance(value, str) or not value:
        raise InvalidInput(key, f"must be a path, got {value!r}")
    return Path(value.replace(_PARTITION, str(context.node_config.get("partition-id", ""))))


def _read_roster(path: Path) -> Roster:
    try:
        found = path.stat()
    except OSError as problem:
        raise InvalidInput(ROSTER, f"must be the path of a roster file: {problem.strerror}") from None
    try:
        return _checked_roster(path, found.st_ino, found.st_mtime_ns, found.st_size)
    except InvalidInput as problem:
        raise InvalidInput(ROSTER, problem.problem) from None


@lru_cache(maxsize=4)
def _checked_roster(path: Path, _inode: int, _modified: int, _size: int) -> Roster:
    """Return a roster file's content; its signatures are checked once per process and version of the file."""
    return Roster.load(path)


def _read_run_secret(path: Path) -> RunSecret:
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise InvalidInput(RUN_KEY, f"must be the path of a private run key: {problem.strerror}") from None
    if len(data) != SECRET_SIZE:
        raise InvalidInput(RUN_KEY, f"must be a file of {SECRET_SIZE} bytes, as `sparsesecagg roster enrol` makes it")
    return RunSecret(data)


def _read_trusted(path: Path) -> list[bytes]:
    try:
        return [bytes.fromhex(line) for line in path.read_text(encoding="utf-8").split()]
    except (OSError, ValueError):
        raise InvalidInput(TRUSTED, "must be a file with one public identity key in hex per line") from None


# Demands


def _refuse_unknown(node_config: Mapping[str, Any]) -> None:
    """Raise for a demand that nobody would read: a typing error must not weaken a policy."""
    known = [*(PREFIX + option for option in _OPTIONS), *_IDENTITY, LEDGER, EVALUATION]
    for key in node_config:
        if key.startswith(PREFIX) and key not in known:
            raise InvalidInput(key, f"in the node-config is not a setting of a node: use one of {', '.join(known)}")


def _whole(key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInput(key, f"must be a whole number of at least 1, got {value!r}")
    return value


def _number(words: str, fits: Callable[[float], bool]) -> Callable[[str, Any], float]:
    def read(key: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not fits(value):
            raise InvalidInput(key, f"must be {words}, got {value!r}")
        return float(value)

    return read


def _server(key: str, value: Any) -> str:
    if value not in ("curious", "lying"):
        raise InvalidInput(key, f"must be curious or lying, got {value!r}")
    return str(value)


def _switch(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(key, f"must be true or false, got {value!r}")
    return value


def _patterns(key: str, value: Any) -> frozenset[str]:
    names = frozenset(str(value).replace(",", " ").split())
    if not names or not names <= set(PATTERNS):
        raise InvalidInput(key, f"must list some of {', '.join(PATTERNS)}, got {value!r}")
    return names


def _bits(key: str, value: Any) -> frozenset[int]:
    words = str(value).replace(",", " ").split()
    if not words or not all(word.isdigit() and int(word) in WORD_BITS for word in words):
        raise InvalidInput(key, f"must list some of {', '.join(map(str, WORD_BITS))}, got {value!r}")
    return frozenset(int(word) for word in words)


_OPTIONS: dict[str, tuple[str, Callable[[str, Any], Any]]] = {
    "min-anonymity": ("min_anonymity", _whole),
    "colluding": ("colluding", _number("in [0, 1)", lambda value: 0 <= value < 1)),
    "failure-log2": ("failure_log2", _number("negative", lambda value: value < 0)),
    "server": ("server", _server),
    "min-clients": ("min_clients", _whole),
    "min-survivors": ("min_survivors", _whole),
    "max-exposure": ("max_exposure", _number("positive", lambda value: value > 0)),
    "max-dim": ("max_dim", _whole),
    "max-clients": ("max_clients", _whole),
    "authenticated": ("authenticated", _switch),
    "patterns": ("patterns", _patterns),
    "modulus-bits": ("modulus_bits", _bits),
}
"""Name in a configuration: name in `Policy`, and how to read it."""


# The proof of an identity
#
# Flower gives nodes ids, a roster gives users numbers, and the server may not simply pair them off: a stranger in the
# place of a user would cost that user its round. So the server sends a fresh X25519 key, and a node answers with a
# value that only the owner of a listed run key can compute. It speaks of exactly this node, this exchange and the keys
# that the node sends in it. The identity has signed the run key, so its own key can stay offline. This protects rounds
# from strangers. Nodes do not rely on it: they prove themselves to each other.


@dataclass(frozen=True)
class Claim:
    """What a node says: that it is this user of this run, and sends these keys."""

    run: bytes
    node: int
    user: int
    keys: bytes

    @property
    def digest(self) -> bytes:
        """What a proof is bound to."""
        return digest(_LABEL, self.run, str(self.node).encode(), str(self.user).encode(), self.keys)


def prove(claim: Claim, run_key: PrivateKey, challenge: bytes) -> bytes:
    """Return the proof of a claim; raises `InvalidKey` for a challenge that would give it away."""
    return _proof(claim, KeyAgreement(run_key).with_peer(challenge))


class Challenge:
    """A key of the server's for one exchange, to which the nodes prove who they are."""

    def __init__(self) -> None:
        private = PrivateKey(os.urandom(SECRET_SIZE))
        self.public = public_key(private)
        self._agreement = KeyAgreement(private)

    def verify(self, claim: Claim, roster: Roster, proof: bytes) -> None:
        """Raise `UnprovenNode` unless the claim is proven."""
        if not 0 <= claim.user < len(roster.entries):
            raise UnprovenNode(claim.node, f"the roster has no user {claim.user}")
        if not bytes_eq(proof, _proof(claim, self._agreement.with_peer(roster.entries[claim.user].run_key))):
            raise UnprovenNode(claim.node, f"it does not prove to be user {claim.user} of the roster")


def _proof(claim: Claim, agreed: AgreedSecret) -> bytes:
    return derive(agreed.reveal(), _LABEL, claim.digest)


# Its weight, rounded at random onto a coarse public grid before anybody else sees anything of it
#
# Weights stay the same from round to round and carry no noise. With random dropouts a server that sees their sums can
# solve for every single one in some tens of rounds (docs/privacy.md, "Weights"). Fresh rounding in each round would
# average out. So a node rounds once: a coin of its own, kept with its ledger, decides for all rounds and all runs.
#
# The grid is the powers of two up to the largest weight, and that one. A weight between two points goes up with just
# the probability that makes the mean right, so that a mean over many nodes is FedAvg's own but for that noise. The
# lowest point is 1: a weight of 0 would take its owner out of the sum in which others hide.


def coin(folder: Path, node: str) -> int:
    """Return this node's coin, a number below 2^64; `node` tells apart nodes of a simulation, which share a folder."""
    secret = derive(_secret(folder / FILE), "weight rounding", bytes(_SIZE), node.encode(), _COIN_BITS // 8)
    return int.from_bytes(secret, "little")


def rounded(weight: int, limit: int, own_coin: int) -> int:
    """Return the grid's point for a weight: above 0, at most `limit`, and right on average over the coins."""
    if weight >= limit:
        return limit
    if weight <= 1:
        return 1
    low = 1 << (weight.bit_length() - 1)
    high = min(2 * low, limit)
    return high if own_coin * (high - low) < (weight - low) << _COIN_BITS else low


def _secret(path: Path) -> bytes:
    """Return what coins are derived from; the first who asks makes it."""
    try:
        if not path.exists():
            draft = path.with_name(f"{FILE}.{secrets.token_hex(8)}")
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(_SIZE))
            try:
                os.link(draft, path)  # Unlike a rename it fails where another process was first.
            except FileExistsError:
                pass
            finally:
                draft.unlink()
        data = path.read_bytes()
    except OSError as problem:
        raise LedgerUnusable(f"can't be written: {problem.strerror}") from None
    if len(data) != _SIZE:
        raise LedgerUnusable(f"is damaged: its file {FILE} must have {_SIZE} bytes")
    return data
