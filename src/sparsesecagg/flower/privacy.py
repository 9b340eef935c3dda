"""What rounds with noise have cost, as the server counts, and the end of the run before they cost more.

The nodes add the noise, and each keeps a budget of its own (`secagg-max-epsilon`) that no server can change. The server
counts too, so that a run ends with a sentence and not with nodes that refuse.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flwr.serverapp.exception import PrivacyBudgetExhausted

from sparsesecagg.errors import InvalidInput
from sparsesecagg.errors import PrivacyBudgetExhausted as NodeBudgetExhausted
from sparsesecagg.files import write_atomically
from sparsesecagg.planning.noise import FAILURE_LOG2, DifferentialPrivacy
from sparsesecagg.privacy.accountant import Cost, usable_delta
from sparsesecagg.protocol import Parameters

_FILE = "privacy.json"
_REFUSED = f"{NodeBudgetExhausted.__name__}: "


@dataclass(frozen=True)
class PrivacySpent:
    """What all rounds have cost each node that took part in all of them. The fields are those of Flower's own."""

    epsilon: float
    delta: float
    num_releases: int
    """Rounds whose UPLOAD messages left, failed ones too."""
    accounting_method: str
    optimal_order: float


class Releases:
    """The rounds so far, and what they cost; in the run folder too, if there is one."""

    def __init__(self, dp: DifferentialPrivacy, folder: Path | None) -> None:
        dp.require_numbers()
        self.dp = dp
        self._path = None if folder is None else folder / _FILE
        self._count, self._cost = 0, Cost()

    def resume(self) -> None:
        """Continue with what an earlier process of the run has written down."""
        if self._path is None:
            return
        try:
            written = json.loads(self._path.read_text(encoding="utf-8"))
            self._count, self._cost = int(written["num_releases"]), Cost(written["rho"], written["xi"])
        except (OSError, ValueError, KeyError, TypeError):
            raise InvalidInput("run_dir", f"must hold the {_FILE} of the run that it resumes, undamaged") from None

    def spent(self) -> PrivacySpent:
        """Return what the rounds have cost."""
        epsilon, order = self._cost.spent(self._delta)
        return PrivacySpent(epsilon if self._count else 0.0, self.dp.delta, self._count, "rdp", float(order))

    def require(self, params: Parameters) -> None:
        """Raise Flower's `PrivacyBudgetExhausted` if one more round would cost more than is allowed."""
        epsilon = self._after(params).epsilon(self._delta)
        if epsilon > self.dp.epsilon:
            raise PrivacyBudgetExhausted(
                f"SecAgg: {self._count} rounds have spent epsilon {self.spent().epsilon:.3g} at delta "
                f"{self.dp.delta:g} ({self.dp.meaning}), and the next one would make it {epsilon:.3g}, above "
                f"{self.dp.epsilon:g}: the noise was made for {self.dp.rounds} rounds"
            )

    def count(self, params: Parameters) -> float:
        """Count a round whose messages are about to leave; return what all of them have cost."""
        self._count, self._cost = self._count + 1, self._after(params)
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            kept = {**vars(self.spent()), "rho": self._cost.rho, "xi": self._cost.xi, "meaning": self.dp.meaning}
            write_atomically(self._path, json.dumps(kept, indent=1) + "\n")
        return self.spent().epsilon

    def _after(self, params: Parameters) -> Cost:
        return self._cost + (params.mechanism.cost if params.mechanism else Cost())

    @property
    def _delta(self) -> float:
        return usable_delta(self.dp.delta, self.dp.epsilon, FAILURE_LOG2)


def require_budgets(refusals: Sequence[str], colluders: int) -> None:
    """Raise if a round failed because nodes have spent their own budgets: more of them than could make it up."""
    spent = [reason for reason in refusals if reason.startswith(_REFUSED)]
    if len(spent) > colluders:
        raise PrivacyBudgetExhausted(
            f"SecAgg: {len(spent)} nodes have spent their own privacy budgets: {spent[0].removeprefix(_REFUSED)}"
        )
