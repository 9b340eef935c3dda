"""What a node brings: its policy, its identity with the proof of it, its ledger, its weight. All its owner's to say.

The owner says it with `flower-supernode --node-config`. What comes with the run or from the server can't weaken it: a
policy is read from the node's own configuration and nowhere else, a node with a roster takes part in nothing that is
not bound to it, and where files lie is none of the run's business. A simulation, whose nodes have no configuration of
their own, may name ledger, roster and run key in the environment of its process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from cryptography.hazmat.primitives.constant_time import bytes_eq
from flwr.app import Context

from sparsesecagg.crypto.identity import Identity, Roster, RunSecret, run_key
from sparsesecagg.crypto.kdf import derive, digest
from sparsesecagg.crypto.keys import KeyAgreement, public_key
from sparsesecagg.crypto.secrets import SECRET_SIZE, AgreedSecret, PrivateKey
from sparsesecagg.errors import InvalidInput, require
from sparsesecagg.flower.errors import UnprovenNode
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.planning.noise import Unit
from sparsesecagg.privacy.accountant import require_epsilon
from sparsesecagg.privacy.anonymity import SERVER_MODELS, ServerModel
from sparsesecagg.protocol import Policy

PREFIX = "secagg-"
ROSTER, RUN_KEY, TRUSTED, LEDGER = "secagg-roster", "secagg-run-key", "secagg-trusted", "secagg-ledger"
MAX_EPSILON, DELTA, CLIP, UNIT = "secagg-max-epsilon", "secagg-delta", "secagg-clip", "secagg-unit"
EVALUATE, WEIGHT_KEY, METRICS = "secagg-evaluate", "secagg-weight-key", "secagg-metrics"
LEDGER_VARIABLE = "SPARSESECAGG_LEDGER"
"""Names the folder of the ledgers where a node's configuration does not: for simulations."""
VARIABLES = {ROSTER: "SPARSESECAGG_ROSTER", RUN_KEY: "SPARSESECAGG_RUN_KEY", TRUSTED: "SPARSESECAGG_TRUSTED"}
"""The same for the files of an identity."""

_PARTITION = "{partition-id}"
_LABEL = "flower seat"
_COIN_BITS: Final = 64


@dataclass(frozen=True)
class Enrolment:
    """A node's place in a run: its number and roster, and the key that proves it."""

    identity: Identity
    run_key: PrivateKey


@dataclass(frozen=True)
class Owner:
    """What the owner of a node demands and allows. Raises `InvalidInput` for what can't be read."""

    context: Context
    policy: Policy = field(init=False)
    enrolment: Enrolment | None = field(init=False)

    def __post_init__(self) -> None:
        config, demands = self.context.node_config, dict[str, Any]()
        known = [*(PREFIX + option for option in _DEMANDS), *VARIABLES, LEDGER, EVALUATE, WEIGHT_KEY, METRICS]
        for key in config:  # A typo must not weaken a policy.
            if key.startswith(PREFIX) and key not in known:
                raise InvalidInput(key, f"in the node-config is not a setting of a node: use one of {', '.join(known)}")
        for option, (name, kind, rule) in _DEMANDS.items():
            if (key := PREFIX + option) in config:
                demands[name] = _read(key, config[key], kind, rule)
        for key in (DELTA, CLIP, UNIT):
            if key in config and MAX_EPSILON not in config:
                raise InvalidInput(key, f"must be given together with {MAX_EPSILON}: without noise it means nothing")
        if MAX_EPSILON in config:
            require_epsilon(demands["max_epsilon"], MAX_EPSILON)
            if config.get(EVALUATE) or config.get(METRICS):
                raise InvalidInput(MAX_EPSILON, f"must not be given with {EVALUATE} or {METRICS}, which no noise hides")
        enrolment = _enrolment(self._named_files())
        if enrolment is not None:  # Or a server could turn authentication off by not speaking of it.
            demands["authenticated"] = True
        object.__setattr__(self, "enrolment", enrolment)
        object.__setattr__(self, "policy", Policy(**demands))

    @property
    def identity(self) -> Identity | None:
        """The user of a roster that this node is, if it has one."""
        return self.enrolment.identity if self.enrolment else None

    @property
    def evaluates(self) -> bool:
        """Whether the node answers evaluation messages, whose replies are not masked.

        With a roster by leave only, and never with a privacy budget.
        """
        if EVALUATE in self.context.node_config:
            return bool(_read(EVALUATE, self.context.node_config[EVALUATE], bool, "true or false"))
        return self.enrolment is None and self.policy.max_epsilon is None

    @property
    def weight_key(self) -> str:
        """The metric of the app that is this node's weight."""
        return str(self.context.node_config.get(WEIGHT_KEY, "num-examples"))

    def allows_metric(self, name: str) -> bool:
        """Return whether a metric may leave under the masks; without a word of the owner, with a roster none may."""
        named = self.context.node_config.get(METRICS)
        if named is None:
            return self.enrolment is None
        return name in str(named).replace(",", " ").split()

    @property
    def folder(self) -> Path:
        """Where the node writes down what it has answered: a folder of its own."""
        if LEDGER in self.context.node_config:
            return self._path(LEDGER, self.context.node_config[LEDGER])
        number = self.context.node_config.get("partition-id")
        return self.models.parent if number is None else self.models.parent / f"node-{number}"

    @property
    def models(self) -> Path:
        """Where the node keeps models; in a simulation all nodes share them."""
        if LEDGER in self.context.node_config:
            return self.folder / "models"
        named = os.environ.get(LEDGER_VARIABLE)
        return (Path(named) if named else Path.home() / ".sparsesecagg" / "ledger") / "models"

    def _named_files(self) -> dict[str, Path]:
        """Return the files by key: the node's own if it names any, else those of the process's environment."""
        config = self.context.node_config
        named = {key: config[key] for key in VARIABLES if key in config}
        named = named or {key: value for key, name in VARIABLES.items() if (value := os.environ.get(name))}
        return {key: self._path(key, value) for key, value in named.items()}

    def _path(self, key: str, value: Any) -> Path:
        """Return a path; in a simulation, whose nodes are told the same, it may hold the number of the partition."""
        if not isinstance(value, str) or not value:
            raise InvalidInput(key, "must be a path")
        return Path(value.replace(_PARTITION, str(self.context.node_config.get("partition-id", ""))))


# Files


def _enrolment(named: Mapping[str, Path]) -> Enrolment | None:
    """Return who the node is; None if it has no roster. Raises `InvalidInput` for files that don't fit together."""
    if not named:
        return None
    for needed, other in ((ROSTER, RUN_KEY), (RUN_KEY, ROSTER)):
        require(needed, needed in named, f"must be named in the same configuration as {other}")
    roster = _read_roster(named[ROSTER])
    if TRUSTED in named:
        roster.require_identities(_read_trusted(named[TRUSTED]))
    secret = _read_run_secret(named[RUN_KEY])
    private = run_key(secret, roster.run)
    public = public_key(private)
    number = next((user for user, entry in enumerate(roster.entries) if entry.run_key == public), None)
    if number is None:
        raise InvalidInput(RUN_KEY, "must be the key of a user of the roster: its public half is not listed there")
    return Enrolment(Identity(number, secret, roster), private)


def _read_roster(path: Path) -> Roster:
    try:
        found = path.stat()
        return _checked_roster(path, found.st_ino, found.st_mtime_ns, found.st_size)
    except OSError as problem:
        raise InvalidInput(ROSTER, f"must be the path of a roster file: {problem.strerror}") from None
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

_WHOLE = Annotated[int, msgspec.Meta(ge=1)], "a whole number of at least 1"
_DEMANDS: dict[str, tuple[str, Any, str]] = {
    "min-anonymity": ("min_anonymity", *_WHOLE),
    "colluding": ("colluding", Annotated[float, msgspec.Meta(ge=0, lt=1)], "in [0, 1)"),
    "failure-log2": ("failure_log2", Annotated[float, msgspec.Meta(lt=0)], "negative"),
    "server": ("server", ServerModel, " or ".join(SERVER_MODELS)),
    "min-clients": ("min_clients", *_WHOLE),
    "max-dim": ("max_dim", *_WHOLE),
    "max-clients": ("max_clients", *_WHOLE),
    "authenticated": ("authenticated", bool, "true or false"),
    "patterns": ("patterns", frozenset, f"a list of some of {', '.join(PATTERNS)}"),
    "max-epsilon": ("max_epsilon", float, "a number"),
    "delta": ("delta", Annotated[float, msgspec.Meta(gt=0, lt=1)], "in (0, 1)"),
    "clip": ("clip_norm", Annotated[float, msgspec.Meta(gt=0, le=sys.float_info.max)], "above 0"),
    "unit": ("unit", Unit, "user or example"),
}
"""Name in a configuration: name in `Policy`, type, and the rule in words."""


def _read(key: str, value: Any, kind: Any, rule: str) -> Any:
    """Return a setting of the node; raise `InvalidInput` if it does not follow its rule."""
    try:
        if kind is not frozenset:
            return msgspec.convert(value, kind)
        names = frozenset(str(value).replace(",", " ").split())
        if names and names <= set(PATTERNS):
            return names
    except msgspec.ValidationError:
        pass
    raise InvalidInput(key, f"must be {rule}, got {value!r}")


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
# average out. So a node rounds once: a coin that follows from its ledger's own secret decides for all rounds and runs.
#
# The grid is the powers of two up to the largest weight, and that one. A weight between two points goes up with just
# the probability that makes the mean right, so that a mean over many nodes is FedAvg's own but for that noise. The
# lowest point is 1: a weight of 0 would take its owner out of the sum in which others hide.


def rounded(weight: int, limit: int, coin: int) -> int:
    """Return the grid's point for a weight: above 0, at most `limit`, and right on average over coins below 2^64."""
    if weight >= limit:
        return limit
    if weight <= 1:
        return 1
    low = 1 << (weight.bit_length() - 1)
    high = min(2 * low, limit)
    return high if coin * (high - low) < (weight - low) << _COIN_BITS else low
