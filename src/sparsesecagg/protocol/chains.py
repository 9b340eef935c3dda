"""Chains of secrets: every pair of users in a pod agrees once per epoch, and hashes on for each round.

What a round needs is taken from the chains when its package is dealt; then they move on, and nothing that is left in
the state gives the secrets of rounds before.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparsesecagg.crypto import sealing
from sparsesecagg.crypto.identity import Identity
from sparsesecagg.crypto.keys import KeyAgreement
from sparsesecagg.crypto.secrets import Entropy, PairChain, PrivateKey
from sparsesecagg.errors import PolicyViolation
from sparsesecagg.protocol.client_state import ClientState
from sparsesecagg.protocol.epoch import Epoch
from sparsesecagg.protocol.package import deal
from sparsesecagg.protocol.stages import ROUND_STAGES

LARGEST_SKIP = 1 << 12
"""Rounds that a server may leap over: the secrets of pairs are hashed once for each."""


def start_chains(epoch: Epoch, place: int, private: PrivateKey, identity: Identity | None) -> dict[int, PairChain]:
    """Return the chain with each partner of the user at a place."""
    agreement, user = KeyAgreement(private), int(epoch.pod.users[place])
    chains = {}
    for partner in epoch.partners(place).tolist():
        peer = int(epoch.pod.users[partner])
        agreed = [agreement.with_peer(epoch.sealing_key(partner))]
        if identity:
            agreed.append(identity.secret_with(peer))  # Only the owner of the peer's identity knows this.
        chains[partner] = sealing.pair_chain(sealing.joined(*agreed), epoch.digest, user, peer)
    return chains


def joined(
    state: ClientState, epoch: Epoch, place: int, data: bytes, draw: int, identity: Identity | None
) -> ClientState:
    """Return the state of a user that has joined an epoch, from its keys as received and the number of the draw."""
    return state.with_changes(
        sealing_private=PrivateKey(b""),
        nonce=b"",
        epoch=data,
        draw=draw,
        chain_round=epoch.first_round,
        chains=start_chains(epoch, place, state.sealing_private, identity),
        secrets={},
        packages={},
        round_number=epoch.first_round - 1,
        answered=len(ROUND_STAGES),  # The round before the first is over.
        history=epoch.digest,
        history_round=epoch.first_round - 1,
        uploaded={},
    )


def may_deal(state: ClientState, number: int) -> bool:
    """Tell whether the round's secrets are still to come: a package is dealt once."""
    return number >= state.chain_round or number in state.secrets


def with_secrets(state: ClientState, upto: int) -> ClientState:
    """Move the chains on until the secrets of round `upto` are there; rounds that are over get none."""
    if upto - state.chain_round > LARGEST_SKIP:
        raise PolicyViolation(f"round {upto} leaps over more than {LARGEST_SKIP} rounds")
    chains, secrets = state.chains, dict(state.secrets)
    for number in range(state.chain_round, upto + 1):
        if number > state.round_number:
            secrets[number] = {partner: sealing.round_secret(chain) for partner, chain in chains.items()}
        chains = {partner: sealing.next_chain(chain) for partner, chain in chains.items()}
    return state.with_changes(chain_round=max(state.chain_round, upto + 1), chains=chains, secrets=secrets)


def with_packages(
    state: ClientState, epoch: Epoch, place: int, numbers: Iterable[int], entropy: Entropy
) -> ClientState:
    """Deal the packages of some rounds, whose secrets are there."""
    dealt = {number: deal(epoch, number, place, state.secrets[number], entropy) for number in numbers}
    return state.with_changes(packages={**state.packages, **dealt})
