"""One user's side of a run: a state machine without I/O.

Bytes come in, bytes go out; sockets and Flower live elsewhere. A call that fails leaves the state as it was, except
that an UNMASK which is refused is used up. The client believes nothing unchecked: it holds its own copy of the
parameters and its own policy, answers each stage of each round once and in order (the ledger sees to that), and gives
away shares only for survivors that have shown its own header.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

from sparsesecagg import errors
from sparsesecagg.crypto import shamir
from sparsesecagg.crypto.identity import Identity
from sparsesecagg.crypto.keys import KeyAgreement, public_key
from sparsesecagg.crypto.sealing import PairCipher
from sparsesecagg.crypto.secrets import Entropy
from sparsesecagg.errors import AlreadyAnswered, InvalidInput, PolicyViolation, WrongBinding, WrongRound, WrongStage
from sparsesecagg.field import pack
from sparsesecagg.patterns.base import Trace, Update, UpdateSource
from sparsesecagg.patterns.masks import Pair
from sparsesecagg.protocol import checks, messages
from sparsesecagg.protocol.epoch import AHEAD, NO_CONTEXT, Epoch, Header, Tags, mask_private
from sparsesecagg.protocol.ledger import ClientState, Journal, Ledger, MemoryLedger, Spending, restore_state, save_state
from sparsesecagg.protocol.messages import EpochKeys, RoundHeader, UnmaskRequest, encode, encode_users, user_number
from sparsesecagg.protocol.parameters import Parameters
from sparsesecagg.protocol.policy import Policy, sharing_noise
from sparsesecagg.protocol.stages import CLIENT_TRANSITIONS, Progress, after

LEAP = 1 << 20
"""How far ahead of what a user has seen an epoch or its first round may be: one message must not use up all numbers."""

Expected = TypeVar("Expected", EpochKeys, RoundHeader, UnmaskRequest)


class Client:
    """One user in a run.

    Send what `advertise_keys` returns, once per epoch; `handle` then answers whatever the server sends. It calls `join`
    once per epoch, and for every round `accept`, `upload`, `share_keys` (the key packages of the next rounds) and
    `unmask`, which engines with ways of their own call themselves.
    """

    def __init__(
        self,
        user: int,
        params: Parameters,
        policy: Policy | None = None,
        entropy: Entropy = os.urandom,
        identity: Identity | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        """`ledger` is where answers are written down before they leave: a file of the node's own (`SqliteLedger`).

        A simulation has one in memory, and so has, by default, a client without a roster.
        """
        errors.require_type("params", params, Parameters)
        errors.require_type("policy", policy, Policy, optional=True)
        params.check()
        user = errors.whole_number("user", user)
        if not 0 <= user < params.clients:
            raise InvalidInput("user", f"must be from 0 to {params.clients - 1}, got {user}")
        self.user = user
        self.params, self._encoded = params, params.encode()
        self.policy = policy or Policy()
        self._identity = checks.checked_identity(identity, user, params)
        self._roster = self._identity.roster if self._identity else None
        self.promise = self.policy.check(params, self._roster)
        """What this user has computed that the run keeps."""
        self._sharing = sharing_noise(params, self._roster) if params.mechanism else 0
        self._entropy = entropy
        if ledger is None and (params.authenticated or self.policy.max_epsilon is not None):  # These rest on it.
            raise InvalidInput(
                "ledger",
                "must be given with a roster or a privacy budget: SqliteLedger on a node, MemoryLedger in a simulation",
            )
        self._journal = Journal(ledger or MemoryLedger(), ClientState(user=user, params=self._encoded))
        self._epoch: tuple[bytes, Epoch] | None = None
        """The epoch that was read last, behind the bytes it was read from."""

    def __repr__(self) -> str:
        return f"Client(user={self.user}, round={self.round_number}, epoch={self.epoch_number})"

    @property
    def _state(self) -> ClientState:
        return self._journal.state

    @property
    def progress(self) -> Progress:
        """Where this client is; `CLIENT_TRANSITIONS` says what may follow."""
        return self._state.progress

    @property
    def round_number(self) -> int:
        """The last round that this client has seen the header of; a server that comes back must be beyond it."""
        return self._state.round_number

    @property
    def epoch_number(self) -> int:
        """The last epoch that this client advertised a key for."""
        return self._state.epoch_number

    @property
    def clipped(self) -> int:
        """How many values of the last update were clipped."""
        return self._state.clipped

    def handle(
        self, data: bytes, update: Update | Callable[[], Update], weight: int = 1, *, context: bytes = NO_CONTEXT
    ) -> list[bytes]:
        """Answer any message of the server; return what goes back to it, in this order.

        `update` is for headers only: a vector or a source as in `upload`, or a function that returns one. The function
        is called when the header is on record, and not at all for a header that was answered before. Raises what
        `join`, `upload` and `unmask` raise; nothing is sent then.
        """
        match messages.decode_server_message(data):
            case EpochKeys():
                self.join(data)
                return self.share_keys(again=True)
            case UnmaskRequest():
                return [self.unmask(data)]
            case RoundHeader():
                answer = self.accept(data, context=context)
                if answer is not None:
                    return [answer, *self.share_keys(again=True)]
                made = update() if callable(update) else update
                with self.one_record():
                    return [self.upload(data, made, weight, context=context), *self.share_keys()]

    # The epoch

    def advertise_keys(self, epoch_number: int | None = None) -> bytes:
        """Make a fresh sealing key and return it. Asked again before `join`, the same one.

        `epoch_number` is the server's, by default the next one. A new epoch ends the one before: its key packages and
        secrets are erased.
        """
        state = self._state
        waiting = self.progress is Progress.ADVERTISED and state.params == self._encoded
        least = state.epoch_number + (not waiting)
        number = least if epoch_number is None else errors.whole_number("epoch_number", epoch_number)
        if number < least:
            raise AlreadyAnswered(f"epoch {number} is over for this client, the next is {state.epoch_number + 1}")
        if number > state.epoch_number + LEAP:
            raise PolicyViolation(f"epoch {number} is too far ahead of epoch {state.epoch_number}")
        if number > state.epoch_number:
            self.params.epoch_seed(number, self._roster)  # Raises if there may be no such epoch.
            state = state.advertised(number, self._encoded, self._entropy)
            self._journal.record(state)
        binding, key = self.params.digest[: messages.BINDING_SIZE], public_key(state.advertised_key())
        return encode(messages.AdvertiseKeys(state.epoch_number, binding, user_number(self.user), key))

    def join(self, data: bytes) -> None:
        """Learn the keys of the group, and start a ratchet with each partner. The same message again changes nothing.

        Who is in the group follows from the epoch's seed; the server does not choose it.
        """
        message, state = self._read(data, EpochKeys), self._state
        if data == state.keys:
            return
        if message.binding != self.params.digest[: messages.BINDING_SIZE]:
            raise WrongBinding("the server")
        if message.round_number != state.epoch_number:
            raise WrongStage(f"epoch {message.round_number}", f"epoch {state.epoch_number}")
        private = state.advertised_key()
        if message.first_round <= state.round_number:
            raise WrongRound(message.first_round, state.round_number + 1)
        if message.first_round > state.round_number + LEAP:
            raise PolicyViolation(f"round {message.first_round} is too far ahead of round {state.round_number}")
        epoch = self._epoch_of(data)
        index = epoch.group.index_of[self.user]
        checks.require_keys(epoch, index, public_key(private))
        self._journal.record(state.joined(epoch, data, epoch.ratchets(index, private, self._identity)))

    def share_keys(self, round_number: int | None = None, again: bool = False) -> list[bytes]:
        """Make the key packages of the next two rounds that were not made yet; return them.

        `round_number` is the round that the server is at, if it is beyond what this client has seen. With `again`,
        packages that were made before are returned too, as the same bytes.
        """
        after(CLIENT_TRANSITIONS, self.progress, "share_keys")
        epoch, index = self._joined()
        state = self._state.from_round(self.round_number if round_number is None else round_number)
        first = max(self.round_number if round_number is None else round_number, state.round_number) + 1
        wanted = range(max(first, epoch.first_round), first + AHEAD)
        fresh = [number for number in wanted if state.may_share(number)]
        if fresh:
            state = state.with_packages(epoch, index, fresh, self._entropy)
        if state is not self._state:
            self._journal.record(state)
        made = [state.packages[number] for number in wanted if number in (state.packages if again else fresh)]
        return [package.for_upload().message for package in made]

    # A round

    def accept(self, data: bytes, *, context: bytes = NO_CONTEXT) -> bytes | None:
        """Check a header and write it down, before the update is made that it asks for; raise as `upload` would.

        From then on every other header of this round is refused, so a server learns nothing by trying. Return the
        answer if this very header was answered before, else None.
        """
        message = self._read(data, RoundHeader)
        answer = self._journal.answered(message, Progress.UPLOADED, data)
        if answer is None:
            self._accept(message, data, context)
        return answer

    def _accept(self, message: RoundHeader, data: bytes, context: bytes) -> None:
        """Check a header and write it down, unless this very one was."""
        if self.progress is Progress.ACCEPTED and data == self._state.header:
            if message.context != context:  # The same header, but this time with another model.
                raise WrongBinding("the server")
            return
        self._journal.answered(message, Progress.ACCEPTED, data)  # Raises if another one was accepted.
        progress = after(CLIENT_TRANSITIONS, self.progress, "accept")
        number, (epoch, index) = message.round_number, self._joined()
        state = self._state.from_round(number)
        if number not in state.packages:
            raise WrongStage("upload", "SHARE_KEYS: no key package was sent for this round")
        checks.check_header(epoch, index, message, state.packages[number], context)
        self.policy.check_budget(self.params, self._journal.ledger.spent(), self._roster)
        self._journal.record(state.with_changes(round_number=number, header=data, progress=progress), data)

    def upload(
        self, data: bytes, update: Update, weight: int = 1, *, context: bytes = NO_CONTEXT, trace: Trace | None = None
    ) -> bytes:
        """Check the header; select, clip, round and mask; return the words with a tag for each partner.

        `update` is a vector of `dim` floats, or a source of them. `weight` is a private integer; above `max_weight` it
        counts as that. `context` is this user's own digest of everything else that decides what it contributes, such as
        the model that the update is relative to: the header must name the same.
        """
        message = self._read(data, RoundHeader)
        if (answer := self._journal.answered(message, Progress.UPLOADED, data)) is not None:
            return answer
        weight, source = checks.checked_weight(weight, self.params), checks.checked_update(update, self.params)
        with self.one_record():
            self._accept(message, data, context)
            progress = after(CLIENT_TRANSITIONS, self.progress, "upload")
            answer, clipped = self._masked(Header(self._joined()[0], message), source, weight, trace)
            state, number = self._state, message.round_number
            spent = self._journal.ledger.spent()
            self.policy.check_budget(self.params, spent, self._roster)  # Again: another run may have spent meanwhile.
            packages = {**state.packages, number: state.packages[number].spent()}
            state = state.with_changes(progress=progress, clipped=clipped, packages=packages)
            self._journal.record(state, data, answer, Spending(spent, self.policy.cost(self.params, self._roster)))
        return answer

    def unmask(self, data: bytes) -> bytes:
        """Return one share per member, of the private seed or of the mask secret, never both: the rule of release.

        Whether it answers or refuses: this client will release nothing more of the round.
        """
        message = self._read(data, UnmaskRequest)
        if (answer := self._journal.answered(message, Progress.OVER, data)) is not None:
            return answer
        state = self._state
        if message.round_number != state.round_number:
            raise WrongRound(message.round_number, state.round_number)
        after(CLIENT_TRANSITIONS, state.progress, "unmask")
        (received, header), (_, index) = self._accepted(), self._joined()
        if message.binding != header.binding:
            raise WrongBinding("the server")
        ciphers = self._ciphers(header.round_number)
        try:
            survivors = checks.own_survivors(header, index, message, Tags(header, index, ciphers))
            package = state.packages[header.round_number]
            held = checks.held_shares(header, index, received, package, ciphers)
            answer = self._unmasked(header, survivors, held)
        except PolicyViolation:  # Used up all the same: the server may not ask again with other survivors.
            self._journal.record(state.from_round(state.round_number + 1), data)
            raise
        self._journal.record(state.from_round(state.round_number + 1), data, answer)
        return answer

    def _masked(self, header: Header, source: UpdateSource, weight: int, trace: Trace | None) -> tuple[bytes, int]:
        """Return the UPLOAD message, and how many values were clipped."""
        epoch, index = self._joined()
        number, unspent = header.round_number, self._state.packages[header.round_number].for_upload()
        agreement = KeyAgreement(mask_private(epoch, number, self.user, unspent.mask_secret))
        partners, masked_sum = header.partners(index).tolist(), header.masked_sum()
        masked = masked_sum.mask(
            source,
            self.params.steps(weight, self._entropy, self._sharing),
            weight,
            [Pair(self.user, epoch.user(peer), agreement.with_peer(header.mask_key[peer])) for peer in partners],
            masked_sum.private_mask(self.user, unspent.private_seed, positive=True),
            trace,
        )
        tags = Tags(header, index, self._ciphers(number)).make(partners)
        words = pack(masked.words, self.params.word)
        message = messages.Upload(number, header.binding, user_number(self.user), masked.locations, words, tags)
        return encode(message), masked.clipped

    def _unmasked(self, header: Header, survivors: set[int], held: dict[int, bytes]) -> bytes:
        """Return one share per owner: of the private seed if it is an own survivor, else of the mask secret."""
        size, number, half = len(header.epoch.group), user_number(self.user), shamir.SHARE_SIZE
        counted, owners = (encode_users(each, size) for each in (survivors, held))
        shares = b"".join(pair[half:] if owner in survivors else pair[:half] for owner, pair in sorted(held.items()))
        return encode(messages.Unmask(header.round_number, header.binding, number, counted, owners, shares))

    # The ledger

    def one_record(self) -> AbstractContextManager[None]:
        """Write all answers that are made inside down as one entry, when the block ends: none may leave before.

        Each entry in a file costs a write to disk; an upload and the packages that leave with it need only one.
        """
        return self._journal.one_entry()

    def save(self) -> bytes:
        """Return the whole state as bytes, for an engine that restarts processes between messages.

        They contain this user's secrets: keep them where only this user can read them. A copy is not a second user:
        whichever of the two answers first, the ledger stops the other, unless the ledger was copied too. Who copies
        both counts as a colluder.
        """
        return save_state(self._state)

    @staticmethod
    def restore(
        data: bytes,
        policy: Policy | None = None,
        entropy: Entropy = os.urandom,
        identity: Identity | None = None,
        ledger: Ledger | None = None,
        params: Parameters | None = None,
    ) -> Client:
        """Return the client that `save` wrote down. Policy, identity and ledger are the owner's to give.

        `params` are those of a new epoch of the same run, for which `advertise_keys` must be called next.
        """
        state = restore_state(data)
        saved = Parameters.decode(state.params)
        if params is not None and params.run != saved.run:
            raise WrongBinding("the server")
        client = Client(state.user, params or saved, policy, entropy, identity, ledger)
        client._journal.state = state
        return client

    # What the server says, and what earlier messages have left

    @staticmethod
    def _read(data: bytes, expected: type[Expected]) -> Expected:
        message = messages.decode_server_message(data)
        if not isinstance(message, expected):
            raise WrongStage(type(message).__name__, expected.__name__)
        return message

    def _epoch_of(self, data: bytes) -> Epoch:
        if self._epoch is None or self._epoch[0] is not data:
            self._epoch = data, Epoch.of_user(self.params, self._read(data, EpochKeys), self._roster, self.user)
        return self._epoch[1]

    def _joined(self) -> tuple[Epoch, int]:
        """Return the epoch and this user's index in its group."""
        if self._state.keys is None or self._state.params != self._encoded:
            raise WrongStage("a round", self.progress.name)
        epoch = self._epoch_of(self._state.keys)
        return epoch, epoch.group.index_of[self.user]

    def _ciphers(self, round_number: int) -> dict[int, PairCipher]:
        """Return the ciphers of a round, by partner."""
        epoch, index = self._joined()
        return epoch.ciphers(index, self._state.secrets[round_number])

    def _accepted(self) -> tuple[RoundHeader, Header]:
        """Return the header of this round, as it was received and as it was read."""
        if self._state.header is None:
            raise WrongStage("unmask", self.progress.name)
        message = self._read(self._state.header, RoundHeader)
        return message, Header(self._joined()[0], message)
