"""The sum at the server: uploads are added as they arrive; at the end the masks that are left in it are taken away.

What is left are the private masks of the survivors and the masks that survivors share with those who dropped out; all
others have cancelled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.keys import KeyAgreement
from sparsesecagg.crypto.secrets import PrivateKey, PrivateSeed
from sparsesecagg.crypto.stream import MaskStream
from sparsesecagg.errors import MalformedMessage
from sparsesecagg.field import unpack
from sparsesecagg.field.words import Words
from sparsesecagg.patterns import BlockIds
from sparsesecagg.protocol.locations import decode_locations
from sparsesecagg.protocol.masking import Mask, RowMasks, add_to_column, pair_seeds, private_mask_seed
from sparsesecagg.protocol.membership import Members
from sparsesecagg.protocol.messages import Upload
from sparsesecagg.protocol.opening import Secrets


class MaskedSum:
    """The sum of all uploads so far, by block: one model in memory, and the locations if the pattern is secret."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._params = members.directory.params
        blocks = self._params.layout.blocks
        self._sums = self._params.word.zeros((blocks, self._params.width))
        self.contributors = np.zeros(blocks, np.min_scalar_type(self._params.clients))
        """How many users have sent each block."""
        self._steps: dict[int, NDArray[np.unsignedinteger[Any]]] = {}
        """By user: the steps between the coordinates it sent, a byte or two each; to add them up is faster than to
        decode locations again."""

    def add(self, upload: Upload) -> None:
        """Add one upload; a malformed one raises and changes nothing."""
        blocks, words = self._read(upload)
        if self._members.pattern.public:
            # Row by row, because indexing several at once would copy them.
            places = range(len(self._sums)) if isinstance(blocks, slice) else blocks.tolist()
            for place, row in zip(places, words.reshape(-1, self._params.width), strict=True):
                np.add(self._sums[place], row, out=self._sums[place])
            self.contributors[blocks] += 1
        else:
            coordinates = np.asarray(blocks)
            steps = np.diff(coordinates, prepend=0)
            self._steps[upload.sender] = steps.astype(np.min_scalar_type(steps.max(initial=0)))
            # `at` is fast only between equal types.
            np.add.at(self._sums[:, 0], coordinates, words.astype(self._sums.dtype))
            np.add.at(self.contributors, coordinates, self.contributors.dtype.type(1))

    def remove_masks(self, secrets: Secrets) -> None:
        """Take away the masks that are left, given one secret of each member."""
        masks = self._masks_left(secrets)
        if self._members.pattern.public:
            row_masks = RowMasks(masks, len(self._sums), self._params.word)
            for place, row in enumerate(self._sums):
                row_masks.add(place, row)
        else:
            add_to_column(self._sums[:, 0], masks, self._params.word)

    def total(self) -> NDArray[np.int64]:
        """Return the signed sum at each coordinate, once the masks are away."""
        layout = self._params.layout
        total = np.empty((layout.blocks, layout.length), np.int64)
        # Blocks without integers beside them lie in one piece.
        rows = [(self._sums, total)] if self._params.width == layout.length else zip(self._sums, total, strict=True)
        for sums, target in rows:
            self._params.word.lift(sums[..., : layout.length], target)
        return layout.flatten(total)

    def integers(self) -> NDArray[np.int64]:
        """Return the sums of the private integers of each block, shape (blocks, 2), once the masks are away."""
        digits = self._params.word.reduce(self._sums[:, self._params.layout.length :])
        return self._params.digits.read(digits.astype(np.int64))  # Digits are not negative: no lifting.

    def _read(self, upload: Upload) -> tuple[BlockIds, Words]:
        """Return the blocks that an upload is for, and its words."""
        pattern = self._members.pattern
        if pattern.public and upload.locations:
            raise MalformedMessage(f"{pattern.name} has public locations, none may be sent")
        blocks = (
            pattern.selected(upload.sender, [])
            if pattern.public
            else decode_locations(upload.locations, self._params.dim)
        )
        count = self._params.layout.count(blocks) * self._params.width
        return blocks, unpack(upload.words, count, self._params.word)

    def _sent_by(self, user: int) -> BlockIds:
        """Return the blocks that a survivor has sent."""
        pattern = self._members.pattern
        return pattern.selected(user, []) if pattern.public else np.cumsum(self._steps[user], dtype=np.int64)

    def _masks_left(self, secrets: Secrets) -> Iterator[Mask]:
        """Make the masks that are left, one by one, with the signs that remove them."""
        survivors = {user for user, secret in secrets.items() if isinstance(secret, PrivateSeed)}
        for user, secret in secrets.items():
            if isinstance(secret, PrivateSeed):
                yield self._private_mask(user, secret)
            else:
                yield from self._orphaned_masks(user, secret, survivors)

    def _private_mask(self, user: int, seed: PrivateSeed) -> Mask:
        stream = MaskStream(private_mask_seed(seed, self._members.context, user), self._params.word)
        return Mask(stream, self._sent_by(user), positive=False)

    def _orphaned_masks(self, user: int, private: PrivateKey, survivors: set[int]) -> list[Mask]:
        """Return the masks that survivors share with a dropped user."""
        pattern, context, directory = self._members.pattern, self._members.context, self._members.directory
        peers = [peer for peer in pattern.peers(user) if peer in survivors]
        agreement = KeyAgreement(private)
        agreed = [agreement.with_peer(directory.mask_key(peer)) for peer in peers]
        seeds = [pair_seeds(secret, context, user, peer) for peer, secret in zip(peers, agreed, strict=True)]
        shared = pattern.shared(user, peers, [pattern_seed for _, pattern_seed in seeds])
        # The survivor added its mask if its number is the smaller one; now it is taken away.
        return [
            Mask(MaskStream(mask_seed, self._params.word), blocks, positive=peer > user)
            for peer, (mask_seed, _), blocks in zip(peers, seeds, shared, strict=True)
        ]
