"""Which kind of work a pattern does: the one place that tells patterns apart."""

from __future__ import annotations

from sparsesecagg.protocol.drawn import Drawn
from sparsesecagg.protocol.order import OrderView
from sparsesecagg.protocol.sliced import Sliced
from sparsesecagg.protocol.work import Work

_WORK: dict[str, type[Work]] = {"committee": Sliced, "full": Sliced, "pairwise": Drawn}


def work_of(order: OrderView, committee: int) -> Work:
    """Return the work of one of the pod's committees in a round."""
    epoch = order.epoch
    return _WORK[epoch.params.pattern](epoch.params, epoch.pod.first + committee, order.round_number, order.digest)
