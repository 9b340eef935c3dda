"""What the server keeps of a pod between rounds: its keys, the packages that travelled ahead, and the declared past."""

from __future__ import annotations

from collections import defaultdict

from sparsesecagg.errors import InvalidKey, MalformedMessage
from sparsesecagg.patterns import Pod
from sparsesecagg.protocol.epoch import Epoch
from sparsesecagg.protocol.messages import (
    EpochKeys,
    ShareKeys,
    decode_client_message,
    decode_server_message,
    encode,
)
from sparsesecagg.protocol.order import extend_chain, mask_key_of
from sparsesecagg.protocol.parameters import Parameters
from sparsesecagg.protocol.server_state import PodState


class ServerPod:
    """A pod, as the server knows it; members go by their places."""

    def __init__(self, epoch: Epoch, keys: bytes) -> None:
        self.epoch = epoch
        self.keys = keys
        """The message that the members got."""
        self.packages: dict[int, dict[int, ShareKeys]] = defaultdict(dict)
        """By round and place."""
        self._mask_keys: dict[int, set[bytes]] = defaultdict(set)
        """By round: the mask keys of these packages."""
        self.history: list[tuple[int, bytes]] = []
        """The declared survivors of each round."""
        self.chain = epoch.digest
        self.last_upload: dict[int, int] = {}
        """By place: the round of its last upload; it knows what was declared before."""

    def take_package(self, place: int, package: ShareKeys) -> None:
        """Keep a member's package, whose mask key must be fresh."""
        key, known = mask_key_of(package.head), self._mask_keys[package.round_number]
        if key in known:
            raise InvalidKey(f"user {package.sender} deals a mask key that occurs twice")
        known.add(key)
        self.packages[package.round_number][place] = package

    def packages_of(self, round_number: int) -> dict[int, ShareKeys]:
        """Return the packages of a round that begins, by place, and forget them and all older ones."""
        packages = self.packages.get(round_number, {})
        for number in [each for each in self.packages if each <= round_number]:
            del self.packages[number]
            self._mask_keys.pop(number, None)
        return packages

    def unknown_to(self, place: int) -> list[tuple[int, bytes]]:
        """Return the declared survivors that a member may not have been told."""
        known = self.last_upload.get(place, -1)
        return [(number, survivors) for number, survivors in self.history if number >= known]

    def declare(self, round_number: int, survivors: bytes) -> None:
        """Add a round to the chain."""
        self.chain = extend_chain(self.chain, round_number, survivors)
        self.history.append((round_number, survivors))

    def save(self) -> PodState:
        """Return what is kept."""
        packages = [encode(message) for each in self.packages.values() for message in each.values()]
        return PodState(self.keys, packages, self.history, self.last_upload)

    @staticmethod
    def restore(saved: PodState, params: Parameters, seed: bytes, group: Pod) -> ServerPod:
        """Return the pod that `save` wrote down."""
        message = decode_server_message(saved.keys)
        if not isinstance(message, EpochKeys):
            raise MalformedMessage("the saved keys are not those of an epoch")
        pod = ServerPod(Epoch(params, message, seed, group), saved.keys)
        for data in saved.packages:
            package = decode_client_message(data)
            if not isinstance(package, ShareKeys):
                raise MalformedMessage("a saved package is not one")
            pod.take_package(group.place[package.sender], package)
        for round_number, survivors in saved.history:
            pod.declare(round_number, survivors)
        pod.last_upload = dict(saved.last_upload)
        return pod
