"""Flower's legacy SecAgg+ in one process: its own mod, its own workflow, nothing of it rewritten.

`SecAggPlusWorkflow` is handed a grid that gives each message to `secaggplus_mod` and brings the answer back. Messages
cross as the protobuf bytes that Flower sends. What is timed is the mod and the workflow; the protobuf work between
them is reported apart (`wire_seconds`), and so is not held against Flower. The strategy only passes the model on.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks import command
from benchmarks.setting import CLIP, Setting
from benchmarks.systems import Measurement
from sparsesecagg.errors import MissingExtra

NAME = "flower_secagg_plus"
_FIRST_NODE = 1 << 32
"""Real node ids are 64-bit numbers; ids of a few bits would flatter the peer's messages."""
_STAGE_NAMES = {
    "setup": "ADVERTISE_KEYS",
    "share_keys": "SHARE_KEYS",
    "collect_masked_vectors": "UPLOAD",
    "unmask": "UNMASK",
}


def require_flower() -> None:
    """Raise `MissingExtra` unless Flower with its legacy SecAgg+ is installed."""
    try:
        found = find_spec("flwr.client.mod.secure_aggregation.secaggplus_mod")
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise MissingExtra("flower", "measuring Flower's SecAgg+")


def installed() -> bool:
    """Tell whether Flower's SecAgg+ is there; if not, say what is missing."""
    try:
        require_flower()
    except MissingExtra as missing:
        command.note(f"{missing}; measuring the rest")
        return False
    return True


def measure(setting: Setting) -> Measurement:
    """Run one round; `exact` says that the mean is right to within Flower's quantisation."""
    return run(setting)[0]


def run(setting: Setting) -> tuple[Measurement, np.ndarray[Any, Any]]:
    """Run one round and return also the mean that Flower computed."""
    require_flower()
    from flwr.app import ConfigRecord, Context, RecordDict
    from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.compat.common import recorddict_compat as compat
    from flwr.server.compat.legacy_context import LegacyContext
    from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
    from flwr.server.workflow.secure_aggregation.secaggplus_workflow import SecAggPlusWorkflow, WorkflowState

    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    _identify()
    workflow = SecAggPlusWorkflow(
        num_shares=1.0,  # Everybody holds shares, as in our complete share graph.
        reconstruction_threshold=setting.majority,
        max_weight=1.0,
        clipping_range=CLIP,
    )
    grid = _grid(setting)
    model = ndarrays_to_parameters([np.zeros(setting.dim, np.float32)])
    state = RecordDict(
        {
            MAIN_CONFIGS_RECORD: ConfigRecord({Key.CURRENT_ROUND: 1}),
            MAIN_PARAMS_RECORD: compat.parameters_to_arrayrecord(model, keep_input=True),
        }
    )
    plain = Context(run_id=1, node_id=0, node_config={}, state=state, run_config={}, series_id=0)
    context = LegacyContext(plain, strategy=_strategy(setting), client_manager=None)
    server_seconds: dict[str, float] = {}
    round_state = WorkflowState()
    for stage, name in _STAGE_NAMES.items():
        away, start = grid.seconds, time.perf_counter()
        if not getattr(workflow, f"{stage}_stage")(grid, context, round_state):
            raise RuntimeError(f"Flower's SecAgg+ stopped at {stage}")
        server_seconds[name] = time.perf_counter() - start - (grid.seconds - away)
    mean = parameters_to_ndarrays(compat.arrayrecord_to_parameters(state.array_records[MAIN_PARAMS_RECORD], True))[0]
    # A step of its quantiser, 2·clip/2^22, is the most that one rounding moves; the float32 model adds its own.
    step = 2 * CLIP / workflow.quantization_range
    measurement = Measurement(
        client_seconds=_with_total({stage: float(np.mean(times)) for stage, times in grid.client_seconds.items()}),
        server_seconds=_with_total(server_seconds),
        sent_bytes=sum(float(np.mean(sizes)) for sizes in grid.sent.values()),
        received_bytes=sum(float(np.mean(sizes)) for sizes in grid.received.values()),
        exact=bool(np.abs(mean - setting.mean()).max() <= step),
        settings={
            "modulus_bits": workflow.modulus_range.bit_length() - 1,
            "neighbours": setting.clients - 1,
            "threshold": setting.majority,
            "alpha_effective": 1.0,
            "wire_seconds": grid.wire_seconds,
        },
    )
    return measurement, mean


def _grid(setting: Setting) -> Any:
    """Return a grid whose nodes are the simulated clients, each with Flower's mod around it."""
    from flwr.app import Context, Message, RecordDict
    from flwr.client.mod.secure_aggregation.secaggplus_mod import secaggplus_mod
    from flwr.common import Code, FitRes, Status, ndarrays_to_parameters
    from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS
    from flwr.common.secure_aggregation.secaggplus_constants import Key as SecAggKey
    from flwr.common.serde import message_from_proto, message_to_proto
    from flwr.compat.common import recorddict_compat as compat
    from flwr.proto.message_pb2 import Message as ProtoMessage

    class LocalGrid:
        """Carries messages as bytes, and keeps the books."""

        def __init__(self) -> None:
            self.contexts = {
                _FIRST_NODE + user: Context(
                    run_id=1, node_id=_FIRST_NODE + user, node_config={}, state=RecordDict(), run_config={}, series_id=0
                )
                for user in range(setting.clients)
            }
            self.seconds = self.wire_seconds = 0.0
            self.client_seconds: dict[str, list[float]] = defaultdict(list)
            self.sent: dict[str, list[int]] = defaultdict(list)
            self.received: dict[str, list[int]] = defaultdict(list)

        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
            del timeout
            start = time.perf_counter()
            answers = [answer for message in messages if (answer := self._visit(message)) is not None]
            self.seconds += time.perf_counter() - start
            return answers

        def _visit(self, message: Message) -> Message | None:
            node = message.metadata.dst_node_id
            stage = _STAGE_NAMES[str(message.content.config_records[RECORD_KEY_CONFIGS][SecAggKey.STAGE])]
            if stage == "UPLOAD" and node - _FIRST_NODE in setting.dropped:
                return None
            if stage == "UNMASK" and node - _FIRST_NODE in setting.dropped:
                raise RuntimeError("a dropped client was asked for shares")
            wire = time.perf_counter()
            data = message_to_proto(message).SerializeToString()
            arrived = message_from_proto(ProtoMessage.FromString(data))
            self.wire_seconds += time.perf_counter() - wire
            model = sum(
                len(array.data) for record in message.content.array_records.values() for array in record.values()
            )
            self.received[stage].append(len(data) - model)

            trained = self._trained(node, arrived)
            start = time.perf_counter()
            answer = secaggplus_mod(arrived, self.contexts[node], lambda *_: trained)
            self.client_seconds[stage].append(time.perf_counter() - start)

            wire = time.perf_counter()
            data = message_to_proto(answer).SerializeToString()
            back = message_from_proto(ProtoMessage.FromString(data))
            self.wire_seconds += time.perf_counter() - wire
            self.sent[stage].append(len(data))
            return back

        def _trained(self, node: int, message: Message) -> Message:
            """What training would return: made before the clock runs."""
            update = ndarrays_to_parameters([setting.update(node - _FIRST_NODE)])
            result = FitRes(Status(Code.OK, ""), update, num_examples=1, metrics={})
            return Message(compat.fitres_to_recorddict(result, keep_input=True), reply_to=message)

    return LocalGrid()


def _strategy(setting: Setting) -> Any:
    """Return a strategy that asks everybody and takes the aggregate as it is, at no cost of its own."""
    from flwr.common import FitIns
    from flwr.server.strategy import FedAvg

    class Node:
        """A client's name tag."""

        def __init__(self, node_id: int) -> None:
            self.node_id = node_id

    class PassOn(FedAvg):
        """Leaves the averaging to the workflow."""

        def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
            del server_round, client_manager
            return [(Node(_FIRST_NODE + user), FitIns(parameters, {})) for user in range(setting.clients)]

        def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
            del server_round, failures
            return results[0][1].parameters, {}

    return PassOn()


def _identify() -> None:
    """Give this process the identity that messages made outside a Flower runtime lack."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:  # Older versions ask for none.
        return
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 0


def _with_total(seconds: dict[str, float]) -> dict[str, float]:
    return {**seconds, "total": sum(seconds.values())}
