"""What only simulations need: randomness from a seed, users who drop out on schedule, identities made on the spot.

Nothing here belongs in a deployment: anyone who knows the seed knows every key.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.identity import USUAL_COLLUDING, Identity, IdentityKey, Roster, RunSecret, enrol
from sparsesecagg.crypto.kdf import derive
from sparsesecagg.crypto.secrets import SECRET_SIZE, Entropy, Secret
from sparsesecagg.crypto.stream import KeyStream
from sparsesecagg.protocol.stages import Stage
from sparsesecagg.simulate.run import EntropyOf


class SimulationSeed(Secret):
    """The seed of a simulated user's randomness."""


class RandomUpdate:
    """A normal random vector, of which only what is asked for is drawn. The same seed gives the same values."""

    _BLOCK = 1 << 14

    def __init__(self, seed: int, round_number: int, dim: int, spread: float, user: int) -> None:
        self.dim = dim
        self._names, self._spread = (seed, round_number, user), np.float32(spread)

    def _block(self, number: int) -> NDArray[np.float32]:
        rng = np.random.Generator(np.random.SFC64([*self._names, number]))
        return rng.standard_normal(self._BLOCK, np.float32) * self._spread

    def read(self, start: int, stop: int) -> NDArray[np.float32]:
        """Return the coordinates from start to stop."""
        first, behind = start // self._BLOCK, -(-stop // self._BLOCK)
        drawn = np.concatenate([np.empty(0, np.float32), *map(self._block, range(first, behind))])
        return drawn[start - first * self._BLOCK : stop - first * self._BLOCK]

    def take(self, coordinates: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return some coordinates."""
        return self.read(0, self.dim).take(coordinates)


def seeded_entropy(seed: int, *names: int) -> Entropy:
    """Return a repeatable source of bytes for one simulated user; `names` tell users and rounds apart."""
    name = b"/".join(str(number).encode() for number in (seed, *names))
    stream = KeyStream(SimulationSeed(derive(name, "simulated entropy", b"")))
    return lambda size: stream.read(size).tobytes()


def entropy_of_run(seed: int) -> EntropyOf:
    """Return every user's source of randomness in a simulated run."""
    return lambda user: seeded_entropy(seed, user)


class EntropyByRound:
    """Every user's randomness by round: a user that is restored between two rounds draws what it would have drawn."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.begin(0)

    def begin(self, round_number: int) -> None:
        """Start the streams of a round; round 0 is the set-up."""
        self._round = round_number
        self._streams: dict[int, Entropy] = {}

    def of(self, user: int) -> Entropy:
        """Return a user's source, which follows the rounds."""

        def read(size: int) -> bytes:
            if user not in self._streams:
                self._streams[user] = seeded_entropy(self._seed, self._round, user)
            return self._streams[user](size)

        return read


def draw_dropouts(
    clients: int, dropout: float, stages: Sequence[Stage], rng: np.random.Generator, *, first_round: bool = True
) -> dict[int, Stage]:
    """Return who drops out of a round, and at which stage: it sends neither that stage's message nor later ones.

    This is what `--dropout` means in every command: each user drops out with probability `dropout` (θ in the paper),
    independently of the others, at one of `stages`. ADVERTISE_KEYS happens once, before the first round: who drops out
    there takes no part in the whole run.
    """
    if not first_round:
        stages = [stage for stage in stages if stage is not Stage.ADVERTISE_KEYS]
        if not stages:
            return {}
    gone, at = rng.random(clients) < dropout, rng.integers(len(stages), size=clients)
    return {user: stages[int(at[user])] for user in np.flatnonzero(gone).tolist()}


def make_identities(
    clients: int,
    run: str,
    entropy: Entropy,
    *,
    group_size: int | None = None,
    colluding: float = USUAL_COLLUDING,
) -> list[Identity]:
    """Enrol simulated users with fresh identities; return them with their common roster, its seed drawn last."""
    secrets = [RunSecret(entropy(SECRET_SIZE)) for _ in range(clients)]
    entries = tuple(enrol(IdentityKey(entropy(SECRET_SIZE)), run, secret) for secret in secrets)
    roster = Roster(run, entries, group_size=group_size, colluding=colluding).with_seed(entropy(SECRET_SIZE))
    return [Identity(user, secret, roster) for user, secret in enumerate(secrets)]
