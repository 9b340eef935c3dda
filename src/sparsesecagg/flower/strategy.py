"""The server's side: a strategy that wraps an averaging strategy.

The wrapped strategy samples nodes, makes their messages, and does with the mean what it always does; it never learns
that it was given one sum instead of many models. A round that fails leaves the model as it was, and the run goes on
with the next number.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result as FlowerResult
from flwr.serverapp.strategy import Strategy

from sparsesecagg.crypto.identity import Roster
from sparsesecagg.flower.arrays import Template
from sparsesecagg.flower.choice import Clips, Wish, described, smallest_number
from sparsesecagg.flower.courier import Courier, PatientGrid
from sparsesecagg.flower.errors import MissingMod, listen
from sparsesecagg.flower.figures import (
    FigureFolder,
    RoundRecord,
    config_of,
    noise_warning,
    shape_of,
    total_weight,
)
from sparsesecagg.flower.records import Invitation, Terms, common_digest, invite, with_model
from sparsesecagg.flower.run import SavedRun, SecureRun, number_rounds
from sparsesecagg.flower.settings import Settings, require_averaging, stage_timeouts, weight_limit
from sparsesecagg.flower.way_down import make_way_down
from sparsesecagg.errors import InvalidInput, ProtocolError, SparseSecAggError
from sparsesecagg.privacy.anonymity import Server
from sparsesecagg.planning.advice import advice
from sparsesecagg.planning.plan import SMALLEST_COHORT
from sparsesecagg.protocol import Parameters, Result, Stage, session_of

_LOG = logging.getLogger("flwr")
_DEFAULT_WEIGHT_KEY = "num-examples"
_SEED_SIZE = 32


class SecAgg(Strategy):
    """Secure aggregation around any averaging strategy: `strategy = SecAgg(FedAvg(...))`.

    The ClientApp needs `@app.train(mods=[secagg_mod])`.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        alpha: float | None = None,
        min_anonymity: int = 5,
        colluding: float = 0.1,
        server: Server = "lying",
        pattern: str = "committee",
        committee_size: int | None = None,
        pod_size: int | None = None,
        modulus_bits: int | None = None,
        clip: float = 1.0,
        adaptive_clip: bool = True,
        weights: str = "examples",
        max_weight: int | None = None,
        neighbours: int | None = None,
        threshold: int | None = None,
        min_survivors: int | None = None,
        confirm: bool | None = None,
        colluders: int | None = None,
        dropout: float = 0.1,
        min_updated: float = 0.0,
        roster: str | Path | Roster | None = None,
        metrics: Mapping[str, float] | None = None,
        timeout: float = 300.0,
        timeouts: Mapping[str | Stage, float] | None = None,
        poll_seconds: float = 0.2,
        downlink: str | None = None,
        downlink_bits: int = 4,
        run_dir: str | Path | None = None,
    ) -> None:
        """Wrap `strategy`; raises `InvalidInput` for what can't work.

        `alpha`: fraction of the model that each node sends. Without it the planner chooses groups for the nodes that
        the first round has, such that every sum has `min_anonymity` honest nodes if the part `colluding` of them helps
        a `server` that lies (or is curious), and logs what it chose. `committee_size`, `pod_size`: nodes that mask
        together, and that hold each other's keys; with an alpha and without them there are as many committees as
        1/alpha rounds to. `pattern`: committee, full or pairwise. `modulus_bits`: from 4 to 32 per value. `clip`: the
        largest change of one parameter in the first round; later ones follow the last mean unless `adaptive_clip` is
        false.

        `weights`: "examples" weighs nodes as the wrapped strategy does, "uniform" weighs all alike. What the former
        leaks: over tens of rounds with dropouts a server can solve for every node's weight. So a node rounds its weight
        at random, without bias and once for all rounds, to a power of two (or to `max_weight`), and that is all there
        is to solve for: the number of its examples to about a factor of two. `max_weight`: the largest weight; larger
        ones count as that.

        `threshold`, `min_survivors`, `neighbours`, `confirm`,
        `colluders`, `dropout`: as in `Parameters`; a node that is left out of sums more often than `dropout` explains
        stops. `min_updated`: fraction of the model that must be updated for a round to count. `roster`: the users of
        an authenticated run, a file of `sparsesecagg roster build`; nodes need `secagg-roster` and `secagg-run-key`.
        `metrics`: metrics of nodes to be averaged, each with its largest magnitude; all others stay on the nodes.
        `timeout`, `timeouts`: seconds that a stage waits, for all and by name of the stage; UPLOAD waits as long as
        `start` is told unless it is named. `downlink`: nodes get `steps` from the model that they hold (default),
        rounded to `downlink_bits` (2, 4 or 8) per coordinate, or the whole `model` in every round. `run_dir`: where to
        write figures for a report, and what a server that is started again needs to go on.
        """
        self.strategy = require_averaging(strategy)
        self._settings = Settings(
            alpha=alpha,
            pattern=pattern,
            committee_size=committee_size,
            pod_size=pod_size,
            modulus_bits=modulus_bits,
            max_weight=weight_limit(weights, max_weight, modulus_bits, pattern),
            neighbours=neighbours,
            threshold=threshold,
            min_survivors=min_survivors,
            confirm=confirm,
            colluders=colluders,
            dropout=dropout,
            min_updated=min_updated,
            metrics=dict(metrics or {}),
            wish=Wish(min_anonymity, colluding, server=server),
        )
        self._roster = Roster.load(Path(roster)) if isinstance(roster, str | Path) else roster
        self._settings.check(clip, self._roster)
        self._clips = Clips(clip, adaptive_clip)
        self._told_timeouts = self._timeouts = stage_timeouts(timeout, timeouts)
        self._courier = Courier(poll_seconds)
        self._way_down = make_way_down(downlink, downlink_bits)
        self._folder = FigureFolder(Path(run_dir)) if run_dir is not None else None
        self._saved = SavedRun(Path(run_dir)) if run_dir is not None else None
        self._rounds_before = 0
        """Rounds that an earlier process has done, if this one goes on with its run."""
        self._model = ArrayRecord()
        self._weight_key = str(getattr(strategy, "weighted_by_key", _DEFAULT_WEIGHT_KEY))
        self._run: SecureRun | None = None
        self._epoch_number = self._last_round = 0
        self._playing: Invitation | None = None
        """Stands for all invitations of the round that is being played."""
        self._terms = Terms(self._weight_key, ())
        self._grid: Grid | None = None
        self._described: bytes = b""
        self.history: list[RoundRecord] = []
        """Every round so far, failed ones too."""

    # Flower's interface

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> FlowerResult:
        """Run the rounds, as every strategy does. If all of them fail, the result holds the initial arrays.

        With a `run_dir` that holds a run which did not come to its end, go on with that one, its model and its rounds.
        """
        self._timeouts = {stage: timeout if told is None else told for stage, told in self._told_timeouts.items()}
        patient = PatientGrid(grid, self._courier, self._timeouts[Stage.UPLOAD])
        initial_arrays = self._take_up(initial_arrays)
        num_rounds = max(0, num_rounds - self._rounds_before)
        watched = self._watch(evaluate_fn) if evaluate_fn else None
        listen()
        result = super().start(patient, initial_arrays, num_rounds, timeout, train_config, evaluate_config, watched)
        if not result.arrays:
            result.arrays = initial_arrays
        if self.history and all(record.failure for record in self.history):
            _LOG.error("SecAgg: no round succeeded, the model is unchanged. %s", self.history[-1].sentence())
        number_rounds(result, self._rounds_before)
        if self._saved:
            self._saved.remove()
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the wrapped strategy choose nodes, exchange keys with them if need be, return their UPLOAD messages."""
        server_round += self._rounds_before
        inner = grid.inner if isinstance(grid, PatientGrid) else grid
        self._playing, self._grid, self._model = None, inner, arrays
        record = RoundRecord(server_round)
        self.history.append(record)
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        try:
            return self._begin(inner, invite(messages), record)
        except (InvalidInput, MissingMod) as error:
            if not any(earlier.failure is None for earlier in self.history[:-1]):
                raise  # What can't work should stop the first round, not fail it again and again.
            return self._fail(error)
        except ProtocolError as error:
            return self._fail(error)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Open the sum and hand the mean to the wrapped strategy as if one node had sent it."""
        server_round += self._rounds_before
        record = self.history[-1] if self.history else RoundRecord(server_round)
        arrays: ArrayRecord | None = None
        metrics: MetricRecord | None = None
        playing, self._playing = self._playing, None
        if playing is not None and self._run is not None and self._grid is not None and record.number == server_round:
            try:
                result = self._run.finish_round(self._grid, replies)
            except ProtocolError as error:
                self._fail(error)
            else:
                try:
                    arrays, metrics = self._aggregate(server_round, result, playing)
                except InvalidInput as error:  # The strategy has made a model that no node could be brought to.
                    record.failed_at = Stage.UNMASK.name
                    self._fail(error)
        (_LOG.warning if record.failure else _LOG.info)("%s", record.sentence())
        if self._folder:
            self._folder.write_rounds(self.history)
        if self._saved:
            self._model = self._model if arrays is None else arrays
            clips, way_down = self._clips.save(), self._way_down.save()
            self._saved.write_model(server_round, self._model, clips, way_down, self.strategy)
        merged = MetricRecord(dict(metrics or {}))
        merged.update(record.metrics())
        return arrays, merged

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Leave evaluation to the wrapped strategy. Its replies are not masked; docs/flower.md says what they show."""
        return self.strategy.configure_evaluate(server_round + self._rounds_before, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Leave evaluation to the wrapped strategy."""
        server_round += self._rounds_before
        metrics = self.strategy.aggregate_evaluate(server_round, replies)
        self._note_evaluation(server_round, metrics)
        return metrics

    def summary(self) -> None:
        """Log the settings, then those of the wrapped strategy."""
        settings = self._settings
        limit = settings.weight_limit
        weights = f"private weights up to {limit}, rounded to powers of two" if limit else "equal weights"
        _LOG.info("\t├──> SecAgg settings:")
        sends = f"alpha {settings.alpha:g}" if settings.alpha else "alpha chosen when the nodes are known"
        _LOG.info("\t│\t├── %s pattern, %s", settings.pattern, sends)
        _LOG.info("\t│\t├── %s, metrics of nodes: %s", weights, ", ".join(settings.metrics) or "none")
        if self._roster:
            _LOG.info("\t│\t├── authenticated: a roster of %d users", len(self._roster.entries))
        _LOG.info("\t│\t└── around %s", type(self.strategy).__name__)
        if getattr(self.strategy, "fraction_evaluate", 0.0):
            _LOG.warning(
                "SecAgg: federated evaluation is not masked: the metrics and numbers of examples of single nodes "
                "reach the server; set fraction_evaluate=0 if they must not"
            )
        self.strategy.summary()

    # A round

    def _begin(self, grid: Grid, invitations: Sequence[Invitation], record: RoundRecord) -> list[Message]:
        """Return the UPLOAD messages of a round, in the run that is under way if that can go on, else in a new one."""
        template = Template.of(invitations[0].model)
        terms = self._terms = Terms(self._weight_key, self._clips.of(template.sizes), self._settings.metrics)
        record.clip = max(terms.scales)
        dim = template.dim + len(terms.metrics)
        common_digest(terms, invitations, b"")  # A strategy that tells nodes different things is refused first.
        invitations = with_model(invitations, self._way_down.offer(invitations[0].model))
        run = self._run
        if run is None or run.params.dim != dim or not run.ready(grid, invitations, record):
            if run is not None:
                _LOG.info("SecAgg: too few of the nodes that hold keys are here, so a new epoch begins")
            run = self._new_run(dim, invitations)
            run.set_up(grid, invitations, record)
            self._run = run  # Only now: if this one could not begin, the one before may still go on.
        run.timeouts, run.way_down = self._timeouts, self._way_down
        self._playing = invitations[0]
        digest = common_digest(terms, invitations, run.run_config)
        run.save = self._save_run
        self._save_run(begun=run.server.round_number + 1)
        messages = run.begin_round(digest, self._settings.min_updated, terms.fields())
        self._last_round = run.server.round_number
        return messages

    def _new_run(self, dim: int, invitations: Sequence[Invitation]) -> SecureRun:
        """Return a run among the invited nodes; raises `InvalidInput` if the settings don't fit the cohort."""
        roster = self._roster
        clients = len(roster.entries) if roster else len(invitations)
        if clients < SMALLEST_COHORT:
            online = len(list(self._grid.get_node_ids())) if self._grid else clients
            raise InvalidInput("strategy", smallest_number(clients, online))
        seed = os.urandom(_SEED_SIZE)
        params = self._settings.parameters(clients, dim, session_of(seed), roster)
        if roster and len(invitations) < params.threshold:
            raise InvalidInput(
                "strategy",
                f"must choose {params.threshold} nodes or more, since rounds with this roster need so many of its "
                f"{clients} users, and chose {len(invitations)}: raise fraction_train and min_available_nodes",
            )
        self._describe(params)
        # With a roster epochs count on from run to run, and a clock is ahead of all earlier ones after a restart too.
        self._epoch_number = max(self._epoch_number + 1, time.time_ns() // 1_000_000)
        return SecureRun(
            params,
            self._courier,
            self._timeouts,
            seed=seed,
            roster=roster,
            epoch_number=self._epoch_number if roster else 1,
            last_round=self._last_round,
        )

    def _aggregate(
        self, server_round: int, result: Result, invitation: Invitation
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Give the wrapped strategy one reply: the mean model, the total weight, the mean of the allowed metrics."""
        template, terms = Template.of(invitation.model), self._terms
        mean, updated = result.mean("observed"), result.updated
        update = template.scaled(mean[: template.dim], terms.scales)
        if result.clipped:
            _LOG.warning("SecAgg: %d values were clipped; the first round's clip may be too small", result.clipped)
        if warning := noise_warning(result):
            _LOG.warning("SecAgg: %s", warning)
        self._clips.learn(template.largest(update), result.clipped)
        metrics: dict[str, Any] = {self._weight_key: total_weight(result)}
        for place, (name, bound) in enumerate(terms.metrics.items(), start=template.dim):
            if updated[place]:
                metrics[name] = float(mean[place]) * bound
        tested = {name: value for name, value in metrics.items() if name.startswith("eval") and name in terms.metrics}
        self._note_evaluation(server_round - 1, tested)  # Of the model that this round began with.
        key = next(iter(invitation.content.array_records))
        content = RecordDict({key: template.add(invitation.model, update), "metrics": MetricRecord(metrics)})
        request = Message(RecordDict(), invitation.node, invitation.message_type)
        arrays, aggregated = self.strategy.aggregate_train(server_round, [Message(content, reply_to=request)])
        return (None if arrays is None else self._way_down.advance(template, arrays)), aggregated

    def _fail(self, error: Exception) -> list[Message]:
        """Note why a round failed, and send nothing."""
        record = self.history[-1]
        record.failure = record.failure or str(error)
        record.failed_at = record.failed_at or Stage.ADVERTISE_KEYS.name
        self._playing = None
        return []

    # A run that an earlier process has begun

    def _take_up(self, initial: ArrayRecord) -> ArrayRecord:
        """Go on with the run in the folder, if there is one; return the model that the rounds begin with."""
        state = self._saved.model() if self._saved and not self.history else None
        if self._saved is None or state is None:
            return initial
        model = state.record
        if Template.of(model) != Template.of(initial):
            raise InvalidInput("run_dir", "holds a run of another model that is not over: name another folder")
        self._rounds_before, self._model = state.round_number, model
        self._clips.restore(state.clips)
        state.remind(self.strategy)
        found = self._saved.run()
        try:
            self._way_down.restore(state.way_down, model)
            if found is not None:
                self._run = SecureRun.restored(found, self._courier, self._timeouts, self._roster)
                self._epoch_number, self._last_round = found.epoch_number, self._run.server.round_number
        except SparseSecAggError as problem:
            _LOG.warning("SecAgg: the keys of the run in the folder can't be used: %s", problem)
        if self._folder:
            self._folder.go_on(state.round_number)
        keys = "with the keys of its epoch" if self._run else "in a new epoch"
        _LOG.info("SecAgg: going on after round %d of the run in %s, %s", state.round_number, self._saved.folder, keys)
        return model

    def _save_run(self, begun: int = 0) -> None:
        run = self._run
        if self._saved and run is not None:
            seats, begun = run.seats.taken, max(begun, run.server.round_number)
            self._saved.write_run(run.server.save(), begun, run.server.epoch_number, seats, run.run_config)

    # Figures

    def _describe(self, params: Parameters) -> None:
        """Log once what the settings come to for this cohort, and write it down."""
        shape = params.replace(session=bytes(_SEED_SIZE)).digest
        if shape == self._described:
            return
        self._described = shape
        settings = self._settings
        stated = described(params, settings.wish, settings.max_weight) if settings.planned else [shape_of(params)]
        for sentence in stated:
            _LOG.info("SecAgg: %s", sentence)
        for sentence in advice(params):
            _LOG.warning("SecAgg: %s", sentence.replace("--committee-size ", "committee_size=").replace("--", ""))
        if self._folder:
            self._folder.write_config(config_of(params, settings, type(self.strategy).__name__))

    def _watch(
        self, evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None]
    ) -> Callable[[int, ArrayRecord], MetricRecord | None]:
        """Return the evaluation function with its figures also noted in the history."""

        def watched(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            server_round += self._rounds_before
            metrics = evaluate_fn(server_round, arrays)
            self._note_evaluation(server_round, metrics)
            return metrics

        return watched

    def _note_evaluation(self, server_round: int, metrics: Mapping[str, Any] | None) -> None:
        record = next((each for each in reversed(self.history) if each.number == server_round), None)
        if not metrics or record is None:
            return
        for name, value in metrics.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                if "acc" in name.lower():
                    record.accuracy = float(value)
                elif "loss" in name.lower():
                    record.loss = float(value)
        if self._folder:
            self._folder.write_rounds(self.history)
