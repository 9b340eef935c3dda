"""The server's side: a strategy that wraps an averaging strategy.

The wrapped strategy samples nodes, makes their messages, and does with the mean what it always does; it never learns
that it was given one sum instead of many models. A round that fails leaves the model as it was, and the run goes on
with the next number.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result as FlowerResult
from flwr.serverapp.strategy import Strategy

from sparsesecagg.crypto.identity import Roster
from sparsesecagg.errors import InvalidInput, ProtocolError, SparseSecAggError, require
from sparsesecagg.flower import settings
from sparsesecagg.flower.arrays import Template
from sparsesecagg.flower.downlink import Downlink
from sparsesecagg.flower.errors import MissingMod, RefusedByAll
from sparsesecagg.flower.figures import Evaluate, History, RoundRecord, RunFiles
from sparsesecagg.flower.messages import Invitation, Terms
from sparsesecagg.flower.packing import Packing
from sparsesecagg.flower.run import SecureRun
from sparsesecagg.flower.state import MODEL, RUN, ModelState, Movement, PrivacySpent, Releases, require_budgets
from sparsesecagg.flower.transport import PatientGrid
from sparsesecagg.patterns.groups import SMALLEST_GROUP
from sparsesecagg.planning.noise import DifferentialPrivacy
from sparsesecagg.protocol import Parameters, Result, RoundOptions, Server
from sparsesecagg.protocol.combine import ByGroup, CentredClipping, Combine, Sum

_LOG = logging.getLogger("flwr")


@dataclass(frozen=True)
class _Playing:
    """A round whose UPLOAD messages are out."""

    grid: PatientGrid
    invitation: Invitation
    packing: Packing
    terms: Terms
    record: RoundRecord


class SecAgg(Strategy):
    """Secure aggregation around any averaging strategy: `strategy = SecAgg(FedAvg(...))`.

    The ClientApp needs `@app.train(mods=[secagg_mod])`. Attributes and methods that this class has not are those of the
    wrapped strategy.
    """

    def __init__(
        self,
        strategy: Strategy,
        options: RoundOptions | None = None,
        *,
        gain: float | Literal["auto"] = "auto",
        dp: DifferentialPrivacy | None = None,
        over: Literal["nodes", "groups", "clipped-groups"] = "nodes",
        groups: int | None = None,
        roster: str | Path | Roster | None = None,
        metrics: Mapping[str, float] | None = None,
        timeout: float = 300.0,
        run_dir: str | Path | None = None,
    ) -> None:
        """Wrap `strategy`; raises `InvalidInput` for what can't work.

        `options`: as everywhere in this package; by default each node sends `DEFAULT_ALPHA` of the model in words as
        short as the groups allow, and all nodes weigh the same. `options.clip`: the largest change of one parameter,
        for all arrays and rounds; by default nodes find the range of each array. With `options.max_weight` nodes weigh
        as their owners say (`num-examples` of the app's metrics), rounded at random to a power of two, and over tens of
        rounds a server can solve for these weights. Who weighs more than all others together is hardly hidden.

        `gain`: what the mean is multiplied by where a round covers only a part of the model, from 1 to one over that
        part; "auto" adapts it, and is the latter with `dp`. `dp`: noise that the nodes add themselves, so that the run
        keeps (ε, δ) for each of them; a round beyond that raises Flower's `PrivacyBudgetExhausted`. `roster`: the users
        of an authenticated run, a file of `sparsesecagg roster build`. `over="groups"`: cut the nodes into `groups` and
        give the wrapped strategy one reply of each; "clipped-groups": centred clipping (docs/malicious-users.md).
        `metrics`: metrics of nodes to be averaged under the masks, each with its largest magnitude; all others stay on
        the nodes. `timeout`: seconds that a stage waits; UPLOAD waits as long as `start` is told. `run_dir`: where to
        write figures for a report, and what a server that is started again needs to go on.
        """
        self.strategy = settings.require_averaging(strategy, over)
        roster = Roster.load(Path(roster)) if isinstance(roster, str | Path) else roster
        told = None if gain == "auto" else gain
        options = settings.DEFAULTS if options is None else options
        self._settings = settings.Settings(options, roster, dp, told, metrics or {}, over, groups)
        self._combine: Combine = {"nodes": Sum, "groups": ByGroup}.get(over) or CentredClipping()
        self._timeout, self._upload_timeout = settings.require_positive("timeout", timeout), 3600.0
        self._folder = RunFiles(run_dir)
        self._history = History(self._folder)
        self._releases = None if dp is None else Releases(dp, self._folder)
        self._movement = Movement(self._settings)
        self._started = False
        self._rounds_before = 0  # Done by an earlier process, if this one goes on with its run.
        self._model = ArrayRecord()
        self._grid: PatientGrid | None = None
        self._run: SecureRun | None = None
        self._template: Template | None = None  # Of the model that the run is for.
        self._playing: _Playing | None = None
        self._excluded: set[int] = set()  # Nodes that get no more rounds.

    def __getattr__(self, name: str) -> Any:
        """Return what the wrapped strategy has: subclasses of strategies have methods of their own."""
        if name.startswith("__") or "strategy" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.strategy, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set what the wrapped strategy has there: `strategy.fraction_train = 0.5` must not be lost here."""
        inner = self.__dict__.get("strategy")
        its = inner is not None and not name.startswith("_") and not hasattr(type(self), name) and hasattr(inner, name)
        object.__setattr__(inner if its else self, name, value)

    def privacy_spent(self) -> PrivacySpent | None:
        """Return what the rounds so far have cost each node, by Flower's field names; None without `dp`."""
        return None if self._releases is None else self._releases.spent()

    @property
    def downlink_bits(self) -> int:
        """Bits per coordinate of the steps that bring nodes to the next model: 2, 4 or 8, or 32 for whole models."""
        return self._movement.downlink.bits

    @downlink_bits.setter
    def downlink_bits(self, bits: int) -> None:
        require("downlink_bits", not self.history, "must be set before the first round")
        self._movement.downlink = Downlink(bits)

    @property
    def arrays(self) -> ArrayRecord:
        """The model after the last round, also if the run ended with an exception."""
        return self._model

    @property
    def history(self) -> list[RoundRecord]:
        """Every round so far, failed ones too."""
        return self._history.rounds

    # Flower's interface

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Evaluate | None = None,
    ) -> FlowerResult:
        """Run the rounds, as every strategy does. If all of them fail, the result holds the initial arrays.

        With a `run_dir` that holds a run which did not come to its end, go on with that one, its model and its rounds.
        """
        self._upload_timeout = settings.require_positive("timeout", timeout)
        self._started, self._rounds_before = True, 0
        initial_arrays = self._resume(initial_arrays)
        if self._releases and num_rounds > self._releases.dp.rounds:
            _LOG.warning("SecAgg: the noise is made for %d rounds, so the run ends there", self._releases.dp.rounds)
        left = max(0, num_rounds - self._rounds_before)
        watched = self._history.watching(evaluate_fn, self._rounds_before) if evaluate_fn else None
        patient = cast("Grid", self._patient(grid))
        with settings.in_charge(self, self.strategy):
            result = self.strategy.start(patient, initial_arrays, left, timeout, train_config, evaluate_config, watched)
        if self.history and all(record.failure for record in self.history):
            _LOG.error("SecAgg: no round succeeded, the model is unchanged. %s", self.history[-1].sentence())
        result.arrays = result.arrays or initial_arrays
        for name in ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"):
            found = getattr(result, name)
            setattr(result, name, {number + self._rounds_before: found[number] for number in found})
        self._folder.remove(MODEL, RUN)
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the wrapped strategy choose nodes, exchange keys with them if need be, return their UPLOAD messages."""
        if not self._started and not self.history:
            self._check_outer()
        server_round += self._rounds_before
        self._playing, self._model = None, arrays
        record, patient = self._history.begin(server_round), self._patient(grid)
        patient.wait_for_nodes(SMALLEST_GROUP, self._timeout)
        messages = list(settings.own(self.strategy, "configure_train")(server_round, arrays, config, grid))
        try:
            return self._begin(patient, Invitation.of(messages), record)
        except (InvalidInput, ProtocolError) as error:
            worked = any(earlier.failure is None for earlier in self.history[:-1])
            if isinstance(error, InvalidInput | MissingMod) and not worked:
                raise  # What can't work should stop the first round, not fail it again and again.
            record.fail(error)
            if self._run is not None:
                self._excluded |= self._run.excluded_nodes
        return []

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Open the sum and hand the mean to the wrapped strategy as if one node had sent it."""
        server_round += self._rounds_before
        record = self._history.current(server_round)
        arrays: ArrayRecord | None = None
        metrics: MetricRecord | None = None
        playing, self._playing = self._playing, None
        if playing is not None and self._run is not None:
            try:
                result = self._run.finish_round(playing.grid, replies)
                arrays, metrics = self._aggregate(server_round, result, playing)
            except (ProtocolError, InvalidInput) as error:  # The latter for a model that no node could be brought to.
                record.fail(error)
                if self._releases:
                    require_budgets(record.refusals.values(), self._run.params.colluders)
            self._excluded |= self._run.excluded_nodes  # Also of a round that they have made fail.
        (_LOG.warning if record.failure else _LOG.info)("%s", record.sentence())
        self._history.write()
        self._model = self._model if arrays is None else arrays
        try:
            self._history.require_hope()
        except RefusedByAll:
            self._folder.remove(MODEL)  # Nothing was learnt: once the cause is mended, all rounds are to be played.
            raise
        if self._folder.path:
            state = ModelState.of(server_round, self._model, self._movement, self.strategy)
            self._folder.write(MODEL, msgspec.msgpack.encode(state), private=True)
        return arrays, MetricRecord({**(metrics or {}), **record.metrics()})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Leave evaluation to the wrapped strategy. Its replies are not masked; docs/flower.md says what they show.

        With noise there is none: replies would tell what noise hides.
        """
        if self._releases:
            return []
        configure = settings.own(self.strategy, "configure_evaluate")
        return list(configure(server_round + self._rounds_before, arrays, config, grid))

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Leave evaluation to the wrapped strategy."""
        server_round += self._rounds_before
        metrics: MetricRecord | None = settings.own(self.strategy, "aggregate_evaluate")(server_round, replies)
        self._history.note_evaluation(server_round, metrics)
        return metrics

    def summary(self) -> None:
        """Log the settings, then those of the wrapped strategy."""
        options, usual, dp = self._settings.options, RoundOptions(), self._settings.dp
        chosen = [f"{name} {value}" for name, value in vars(options).items() if value != getattr(usual, name)]
        _LOG.info("\t├──> SecAgg around %s: %s", type(self.strategy).__name__, ", ".join(chosen) or "defaults")
        if dp:
            _LOG.info("\t│\t└── %s (%s); nodes do not evaluate", dp, dp.meaning)
        elif getattr(self.strategy, "fraction_evaluate", False):
            _LOG.warning("SecAgg: %s", settings.UNMASKED_EVALUATION)
        settings.own(self.strategy, "summary")()

    # A round

    def _check_outer(self) -> None:
        """Refuse strategies around this one that can't be. They are among the callers: Flower does not name them."""
        require(
            "run_dir",
            not self._folder.path,
            "must not be given to a SecAgg inside another strategy, which can't resume it",
        )
        frame = sys._getframe(1)
        while caller := frame.f_back:
            frame = caller
            if isinstance(outer := frame.f_locals.get("self"), Strategy) and outer is not self:
                settings.require_around(outer)

    def _patient(self, grid: Grid) -> PatientGrid:
        """Return the grid of this run, which knows who still owes an answer, around Flower's."""
        if isinstance(grid, PatientGrid):
            return grid
        if self._grid is None or self._grid.inner is not grid:
            self._grid = PatientGrid(grid)
        return self._grid

    def _begin(self, grid: PatientGrid, invitation: Invitation, record: RoundRecord) -> list[Message]:
        """Return the UPLOAD messages of a round, in the run that is under way if that can go on, else in a new one."""
        told = self._settings
        if told.roster is None:
            welcome = tuple(node for node in invitation.nodes if node not in self._excluded)
            invitation = replace(invitation, nodes=welcome or invitation.nodes)
        template, invited = Template.of(invitation.model), len(invitation.nodes)
        run = self._run
        if run is None or self._template != template or not run.ready(grid, invitation, record):
            if run is not None:
                _LOG.info("SecAgg: other nodes than those that hold keys were chosen, so keys are exchanged anew")
            params = told.parameters(template, invited, len(list(grid.get_node_ids())))
            if self._releases:
                self._releases.require(params)
            run = self._new_run(params, template, invited)
            run.set_up(grid, invitation, record)
            # Only now: if this one could not begin, the one before may still go on.
            self._run, self._template = run, template
        if self._releases:
            self._releases.require(run.params)
        packing = Packing(template, run.params, len(told.metrics))
        invitation = invitation.with_model(self._movement.downlink.publish(invitation.model, packing, run.seed))
        terms = self._movement.terms(template)
        if not terms.scales:
            replies = grid.exchange(self._upload_messages(run, invitation, terms), self._upload_timeout)
            self._movement.take_votes(packing, run.finish_round(grid, replies.values()))
            terms = self._movement.terms(template)
        record.clip = max(terms.scales)
        self._playing = _Playing(grid, invitation, packing, terms, record)
        if self._releases:
            record.epsilon = self._releases.count(run.params)
        return list(self._upload_messages(run, invitation, terms).values())

    def _upload_messages(self, run: SecureRun, invitation: Invitation, terms: Terms) -> dict[int, Message]:
        """Begin a round of the protocol, whose number is used up from here on."""
        self._folder.write(RUN, run.save(), private=True)
        return run.begin_round(invitation, terms, self._upload_timeout)

    def _new_run(self, params: Parameters, template: Template, invited: int) -> SecureRun:
        """Return a run among the invited nodes; with a roster it is the next epoch of the same one."""
        settings.require_threshold(params, invited)
        self._history.introduce(params, self._settings, type(self.strategy).__name__, template.bytes)
        roster, before = self._settings.roster, self._run.server if self._run else None
        server = Server(params, roster, combine=self._combine)
        if before is not None:
            server.catch_up(before.round_number)
            if roster:
                server.begin_epoch(before.epoch_number + 1)
                server.excluded |= before.excluded
                if params.groups == 1:  # Else others were in the group, who may collude too.
                    server.accusers |= before.accusers
        return SecureRun(server, self._timeout, self._movement.downlink)

    def _aggregate(
        self, server_round: int, result: Result, playing: _Playing
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Give the wrapped strategy one reply, or one per group: moved model, weight, mean of the allowed metrics."""
        invitation, packing = playing.invitation, playing.packing
        moved, means, playing.record.gain = self._movement.move(packing, playing.terms, result, invitation.model)
        tested = {name: value for name, value in means.items() if name.startswith("eval")}
        self._history.note_evaluation(server_round - 1, tested)  # Of the model that this round began with.
        counted = getattr(self.strategy, "weighted_by_key", "num-examples")
        replies = [invitation.reply(model, {counted: weight, **means}) for model, weight in moved]
        arrays, aggregated = settings.own(self.strategy, "aggregate_train")(server_round, replies)
        if arrays is not None:
            for slot in packing.template.slots:  # Strategies compute in floats, which do not hold every integer.
                if not slot.size and slot.name in arrays:
                    arrays[slot.name] = invitation.model[slot.name]
            arrays = self._movement.downlink.advance(packing.template, arrays)
        return arrays, aggregated

    # A run that an earlier process has begun

    def _resume(self, initial: ArrayRecord) -> ArrayRecord:
        """Go on with the run in the folder, if there is one; return the model that the rounds begin with."""
        data = None if self.history else self._folder.read(MODEL)
        if data is None:
            if self._releases and not self.history and self._folder.read(RUN) is not None:
                self._releases.resume()  # It ended in its first round, whose uploads may have left.
            return initial
        state = ModelState.read(data)
        model = state.remind(self.strategy)
        if Template.of(model) != Template.of(initial):
            raise InvalidInput("run_dir", "holds a run of another model that is not over: name another folder")
        self._rounds_before, self._model, self._template = state.round_number, model, Template.of(model)
        if self._releases:
            self._releases.resume()
        downlink, roster = self._movement.downlink, self._settings.roster
        try:
            if (data := self._folder.read(RUN)) is not None:
                run = SecureRun.restore(data, self._timeout, downlink, roster, self._combine)
                now = self._settings.parameters(self._template, run.params.clients, run.params.clients)
                if now.replace(session=run.params.session) == run.params:
                    self._run = run
                else:
                    _LOG.warning(
                        "SecAgg: other options than those of the run in the folder, so keys are exchanged anew"
                    )
            self._movement.restore(state.movement, model, self._run.params if self._run else None)
        except SparseSecAggError as problem:
            _LOG.warning("SecAgg: the keys of the run in the folder can't be used: %s", problem)
        self._history.resume(state.round_number)
        keys = "with the keys of its epoch" if self._run else "in a new epoch"
        _LOG.info("SecAgg: resuming after round %d of the run in %s, %s", state.round_number, self._folder.path, keys)
        return model
