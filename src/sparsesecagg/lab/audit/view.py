"""From the messages of a run to what server and colluders know of each group in a round: an `Adversary`, well fed.

The server keeps every message, and the colluders hand over their states. Nothing else goes in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from sparsesecagg.crypto.identity import Roster
from sparsesecagg.lab.audit.adversary import Adversary
from sparsesecagg.protocol import Parameters, Stage
from sparsesecagg.protocol.epoch import Epoch
from sparsesecagg.protocol.header import Header
from sparsesecagg.protocol.messages import (
    EpochKeys,
    RoundHeader,
    ShareKeys,
    Unmask,
    Upload,
    decode_client_message,
    decode_server_message,
)
from sparsesecagg.protocol.state import ClientState

Messages = Iterable[tuple[Stage, int, bytes]]
"""Stage, user and bytes of what was sent or received."""


class RunView:
    """Everything that was said in a run. Feed it with the messages, then ask for rounds."""

    def __init__(self, params: Parameters, roster: Roster | None = None) -> None:
        self.params, self._roster = params, roster
        self._epochs: dict[int, Epoch] = {}
        """By group."""
        self._packages: dict[int, dict[int, ShareKeys]] = defaultdict(dict)
        self._headers: dict[int, dict[int, RoundHeader]] = defaultdict(dict)
        self._uploads: dict[int, dict[int, Upload]] = defaultdict(dict)
        self._unmask: dict[int, dict[int, Unmask]] = defaultdict(dict)
        """All of these by round and user."""

    def take(self, sent: Messages, received: Messages) -> None:
        """File messages: those that users sent, and those that they received."""
        for _, user, data in received:
            message = decode_server_message(data)
            match message:
                case EpochKeys():
                    epoch = Epoch.of_user(self.params, message, self._roster, user)
                    self._epochs.setdefault(epoch.group.number, epoch)
                case RoundHeader():
                    self._headers[message.round_number][user] = message
        for _, user, data in sent:
            answer = decode_client_message(data)
            match answer:
                case ShareKeys():
                    self._packages[answer.round_number][user] = answer
                case Upload():
                    self._uploads[answer.round_number][user] = answer
                case Unmask():
                    self._unmask[answer.round_number][user] = answer

    def round(self, number: int, colluders: Mapping[int, ClientState]) -> list[Adversary]:
        """Return what is known of each group in a round, and forget the round."""
        packages, headers = self._packages.pop(number, {}), self._headers.pop(number, {})
        uploads, unmask = self._uploads.pop(number, {}), self._unmask.pop(number, {})
        found = []
        for epoch in self._epochs.values():
            index_of = epoch.group.index_of
            adversary = Adversary(
                epoch,
                number,
                {index_of[user]: each for user, each in packages.items() if user in index_of},
                {index_of[user]: each for user, each in colluders.items() if user in index_of},
            )
            for user in index_of.keys() & uploads.keys():
                adversary.take_upload(index_of[user], Header(epoch, headers[user]), uploads[user])
            for user in index_of.keys() & unmask.keys():
                if user not in colluders:
                    adversary.take_shares(index_of[user], unmask[user])
            adversary.restore()
            found.append(adversary)
        return found
