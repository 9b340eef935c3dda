"""One user's side of a run: a state machine without I/O.

Bytes come in, bytes go out; sockets and Flower live in `engines/`. A call that fails leaves the state as it was, except
that an UNMASK which is refused is used up. The client believes nothing unchecked: it holds its own copy of the
parameters and its own policy, answers each stage of each round once and in order (the ledger sees to that), and gives
away shares only for committees whose survivors all show that they worked under the same order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TypeVar

from sparsesecagg.crypto.identity import Identity
from sparsesecagg.crypto.keys import public_key
from sparsesecagg.crypto.secrets import SECRET_SIZE, Entropy, PrivateKey
from sparsesecagg.errors import (
    AlreadyAnswered,
    InvalidInput,
    PolicyViolation,
    WronglyExcluded,
    WrongRound,
    WrongStage,
    WrongView,
)
from sparsesecagg.protocol.acceptance import accept_order, require_keys, require_turn, view_order
from sparsesecagg.protocol.arguments import checked_identity, checked_ledger, checked_update, checked_weight
from sparsesecagg.protocol.chains import joined, may_deal, with_packages, with_secrets
from sparsesecagg.protocol.client_state import ClientState, restore_state, save_state
from sparsesecagg.protocol.draw_messages import DrawRequest, decode_draw
from sparsesecagg.protocol.draws import checked_groups
from sparsesecagg.protocol.history import judge_history
from sparsesecagg.protocol.journal import Journal
from sparsesecagg.protocol.juror import answer_draw
from sparsesecagg.protocol.ledger import Ledger
from sparsesecagg.protocol.member import Member
from sparsesecagg.protocol.messages import (
    NONCE_SIZE,
    VIEW_SIZE,
    AdvertiseKeys,
    ConfirmRequest,
    EpochKeys,
    Order,
    ServerMessage,
    UnmaskRequest,
    decode_server_message,
    encode,
    user_number,
)
from sparsesecagg.protocol.order import NO_TERMS, OrderView
from sparsesecagg.protocol.package import AHEAD, Package
from sparsesecagg.protocol.parameters import Parameters
from sparsesecagg.protocol.policy import Policy
from sparsesecagg.protocol.release import checked_survivors, shares_to_release
from sparsesecagg.protocol.stages import ROUND_STAGES, Stage
from sparsesecagg.protocol.work import Trace, Update

Expected = TypeVar("Expected", EpochKeys, Order, ConfirmRequest, UnmaskRequest)


class Client:
    """One user in a run.

    Per epoch call `advertise_keys` and `join`; then, for every round, `upload` and `unmask` (with `confirm` between
    them where the parameters ask for it), and whenever there is an occasion `share_keys`, which deals the packages of
    the next rounds.
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
        params.check()
        if not 0 <= user < params.clients:
            raise InvalidInput("user", f"must be from 0 to {params.clients - 1}, got {user}")
        self.user = user
        self.params = params
        self.policy = policy or Policy()
        self.policy.check_parameters(params)
        self._identity = checked_identity(identity, user, params)
        self._entropy = entropy
        self._journal = Journal(checked_ledger(ledger, params), ClientState(user=user, params=params.encode()))

    def __repr__(self) -> str:
        return f"Client(user={self.user}, round={self.round_number}, epoch={self._state.epoch_number})"

    @property
    def _state(self) -> ClientState:
        return self._journal.state

    @property
    def round_number(self) -> int:
        """The last round that this client knows of."""
        return self._state.round_number

    @property
    def clipped(self) -> int:
        """How many values of the last update were clipped."""
        return self._state.clipped

    @property
    def stopped(self) -> str:
        """Why this client takes no further part in the run; empty if it does."""
        return self._state.stopped

    # The epoch

    @property
    def seen(self) -> tuple[int, int]:
        """The last round and the last draw that this client knows of: a server that comes back must be beyond both."""
        return self._state.round_number, max(self._state.draw, self._journal.ledger.juror().last_draw)

    def advertise_keys(self, epoch_number: int | None = None) -> bytes:
        """Make a fresh sealing key and a nonce for the draw; return both. Asked again before `join`, the same ones.

        `epoch_number` is the server's, by default the next one. A new epoch ends the one before: its packages and
        secrets are erased.
        """
        self._journal.require_going()
        state = self._state
        if epoch_number is None:
            epoch_number = state.epoch_number + (not state.nonce)
        if epoch_number < state.epoch_number or (epoch_number == state.epoch_number and not state.nonce):
            raise AlreadyAnswered(f"epoch {epoch_number} is over for this client")
        if epoch_number > state.epoch_number:
            state = state.with_changes(
                params=self.params.encode(),
                epoch_number=epoch_number,
                sealing_private=PrivateKey(self._entropy(SECRET_SIZE)),
                nonce=self._entropy(NONCE_SIZE),
                epoch=b"",
                chains={},
                secrets={},
                packages={},
                order=b"",
            )
            self._journal.record(state)
            self.__dict__.pop("_member", None)
        view = self.params.digest[:VIEW_SIZE]
        key = public_key(state.sealing_private)
        return encode(AdvertiseKeys(state.epoch_number, view, user_number(self.user), key, state.nonce))

    def reveal(self, data: bytes) -> bytes:
        """Answer a draw as a juror: sign who is named, and reveal the nonce of this draw. Once per draw number."""
        request = decode_draw(data)
        if self._identity is None or not isinstance(request, DrawRequest):
            raise WrongStage(type(request).__name__, Stage.ADVERTISE_KEYS.name)
        self._journal.require_going()
        before = self._journal.ledger.juror()
        juror, answer = answer_draw(self._identity, self.params, before, request)
        if juror is not before:
            self._journal.ledger.record_juror(before, juror)
        return answer

    def join(self, data: bytes) -> None:
        """Learn the groups and the keys of the pod, and start a chain of secrets with each partner in it.

        The same message again changes nothing.
        """
        message = self._read(data, EpochKeys)
        state = self._state
        if state.epoch and data == state.epoch:
            return
        if message.view != self.params.digest[:VIEW_SIZE]:
            raise WrongView("the server")
        if message.round_number != state.epoch_number or not state.nonce:
            raise WrongStage(f"epoch {message.round_number}", f"epoch {state.epoch_number}")
        if message.first_round <= state.round_number:
            raise WrongRound(message.first_round, state.round_number + 1)
        draw = checked_groups(self.params, message.draw, self.user, state.nonce, self._identity, state.draw)
        self.policy.check_structure(self.params, draw.structure)
        member = Member.of(self.user, self.params, message, draw)
        require_keys(member.epoch, member.place, public_key(state.sealing_private))
        self._journal.record(joined(state, member.epoch, member.place, data, draw.number, self._identity))
        self._member = member

    # Packages

    def share_keys(self, round_number: int, again: bool = False) -> list[bytes]:
        """Deal the packages of the next two rounds that were not dealt yet; return them.

        `round_number` is the round that the server is at, or the one before the first. With `again`, packages that were
        dealt before are returned too, as the same bytes.
        """
        self._journal.require_going()
        state = self._state.from_round(round_number)
        epoch, place = self._member.epoch, self._member.place
        wanted = range(max(state.round_number + 1, epoch.first_round), state.round_number + 1 + AHEAD)
        fresh = [number for number in wanted if number not in state.packages and may_deal(state, number)]
        if fresh:
            state = with_packages(with_secrets(state, fresh[-1]), epoch, place, fresh, self._entropy)
        if state is not self._state:
            self._journal.record(state)
        return [state.packages[number].message for number in wanted if number in (state.packages if again else fresh)]

    # A round

    def check_order(self, data: bytes, *, terms: bytes = NO_TERMS) -> bytes | None:
        """Check an order before the update is made that it asks for; raise as `upload` would.

        Return the answer if this very order was answered before, else None.
        """
        message = self._read(data, Order)
        if (answer := self._journal.answered(message, Stage.UPLOAD, data)) is not None:
            return answer
        self._accepted(message, terms)
        return None

    def upload(
        self, data: bytes, update: Update, weight: int = 1, *, terms: bytes = NO_TERMS, trace: Trace | None = None
    ) -> bytes:
        """Check the order, quantise and mask the selected part of the update; return it with a tag for each partner.

        `update` is a vector of `dim` floats, or a source of them. `weight` is a private integer; above `max_weight` it
        counts as that.
        `terms` is this user's own digest of everything else that decides what it contributes, such as the model that
        the update is relative to: the order must name the same.
        """
        message = self._read(data, Order)
        if (answer := self._journal.answered(message, Stage.UPLOAD, data)) is not None:
            return answer
        weight = checked_weight(weight, self.params)
        source = checked_update(update, self.params)
        self.policy.check_weight(self.params, weight)
        state, package, order, heads = self._accepted(message, terms)

        secrets = state.secrets[order.round_number]
        answer, clipped = self._member.upload(order, heads, package, secrets, source, weight, self._entropy, trace)
        self._journal.record(
            state.with_changes(
                answered=ROUND_STAGES.index(Stage.UPLOAD),
                order=data,
                clipped=clipped,
                packages={**state.packages, order.round_number: package.spent()},
                uploaded={**state.uploaded, order.round_number: b""},
            ),
            data,
            answer,
        )
        self._order = order
        return answer

    def confirm(self, data: bytes) -> bytes:
        """Settle for one set of survivors, and return a tag for each other survivor that says which.

        A server that tells different users different survivors finds nobody with enough tags to release a share.
        """
        message = self._read(data, ConfirmRequest)
        if (answer := self._journal.answered(message, Stage.CONFIRM, data)) is not None:
            return answer
        order = self._order_of(message, Stage.CONFIRM)
        survivors = checked_survivors(order, self._member.place, message.survivors)
        secrets = self._state.secrets[order.round_number]
        answer = self._member.confirm(order, secrets, message.survivors, survivors)
        self._journal.record(
            self._state.with_changes(
                answered=ROUND_STAGES.index(Stage.CONFIRM),
                confirmed=message.survivors,
                uploaded={**self._state.uploaded, order.round_number: message.survivors},
            ),
            data,
            answer,
        )
        return answer

    def unmask(self, data: bytes) -> bytes:
        """Return shares for each committee whose survivors all show the same order: one kind per owner, never both.

        Whether it answers or refuses: this client will release nothing more of the round.
        """
        message = self._read(data, UnmaskRequest)
        if (answer := self._journal.answered(message, Stage.UNMASK, data)) is not None:
            return answer
        order = self._order_of(message, Stage.UNMASK)
        shares, refusal = {}, None
        try:
            received, least = self._received_order(), self.policy.min_survivors
            shares = shares_to_release(order, message, received, self._member, self._state, least)
        except PolicyViolation as problem:  # Used up all the same: the server may not ask again with other survivors.
            refusal = problem
        answer = self._member.unmask(order, shares) if shares else b""
        state = self._state.with_changes(answered=ROUND_STAGES.index(Stage.UNMASK))
        if shares:
            state = state.with_changes(uploaded={**state.uploaded, order.round_number: message.survivors})
        self._journal.record(state.after_round(), data, answer)
        if refusal:
            raise refusal
        return answer

    # The ledger

    @contextmanager
    def one_record(self) -> Iterator[None]:
        """Write all answers that are made inside down as one entry, when the block ends: none may leave before.

        Each entry in a file costs a write to disk; an upload and the packages that leave with it need only one.
        """
        try:
            with self._journal.one_entry():
                yield
        except BaseException:
            self.__dict__.pop("_order", None)  # It may be one that is not on record.
            raise

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
            raise WrongView("the server")
        client = Client(state.user, params or saved, policy, entropy, identity, ledger)
        client._journal.state = state
        return client

    # What the server says, and what earlier messages have left

    def _read(self, data: bytes, expected: type[Expected]) -> Expected:
        self._journal.require_going()
        message: ServerMessage = decode_server_message(data)
        if not isinstance(message, expected):
            raise WrongStage(type(message).__name__, expected.__name__)
        return message

    @cached_property
    def _member(self) -> Member:
        if not self._state.epoch:
            raise WrongStage("a round", Stage.ADVERTISE_KEYS.name)
        message = decode_server_message(self._state.epoch)
        assert isinstance(message, EpochKeys)  # noqa: S101  # `join` has stored it.
        draw = checked_groups(self.params, message.draw, self.user, None, self._identity, 0)
        return Member.of(self.user, self.params, message, draw)

    @cached_property
    def _order(self) -> OrderView:
        return view_order(self._member.epoch, self._received_order(), self._state.history)

    def _received_order(self) -> Order:
        message = decode_server_message(self._state.order)
        assert isinstance(message, Order)  # noqa: S101  # `upload` has stored it.
        return message

    def _order_of(self, message: ConfirmRequest | UnmaskRequest, stage: Stage) -> OrderView:
        """Return the order of the round that is being answered; raise unless it is this stage's turn."""
        require_turn(self._state, message.round_number, stage, confirm=self.params.confirm)
        if message.view != self._order.view:
            raise WrongView("the server")
        return self._order

    # Checks

    def _accepted(self, message: Order, terms: bytes) -> tuple[ClientState, Package, OrderView, dict[int, bytes]]:
        """Return the state as the round begins, its package, the order and the committee's heads; raise to refuse.

        Survivors that were declared since are taken in. If this user was wrongly left out, it stops for good.
        """
        member = self._member
        if message.view != member.epoch.view:
            raise WrongView("the server")  # Another pod's past is no reason to stop.
        state, problem = judge_history(
            self._state.from_round(message.round_number), member.epoch, member.place, message
        )
        if problem:
            self._journal.record(state.with_changes(stopped=problem))
            raise WronglyExcluded(problem)
        package = state.packages.get(message.round_number)
        if package is None:
            raise WrongStage(Stage.UPLOAD.name, f"{Stage.SHARE_KEYS.name}: no package was dealt for this round")
        order, heads = accept_order(
            member.epoch,
            message,
            place=member.place,
            head=package.head,
            terms=terms,
            chain=state.history,
            min_survivors=self.policy.min_survivors,
        )
        return state, package, order, heads
