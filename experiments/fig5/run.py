"""Train until the target with every system, then attack rounds of the two sparse ones."""

from __future__ import annotations

from functools import partial
from typing import Any

from experiments.common.experiment import Findings
from experiments.common.training import ADVERSARIES, PAIRWISE, Cohort, System, committee_of_ten, train_all
from experiments.common.work import Work
from experiments.fig4.run import share_of_rounds
from experiments.fig4.sampling import sample
from experiments.fig5.config import Config
from sparsesecagg.privacy.audit import AuditSettings, run_audit
from sparsesecagg.protocol import Parameters


def run(config: Config, seed: int, work: Work) -> Findings:
    """Train all runs of the figure; audit each sparse setting with a third of the users colluding."""
    found = train_all(config.training, seed, work)
    if not found.complete:
        return found._replace(numbers=found.numbers | {"revealed": []})
    sparse = [
        (cohort, system)
        for cohort in config.training.cohorts
        for system in cohort.systems + cohort.ours
        if system in (PAIRWISE, committee_of_ten(cohort.clients))
    ]
    revealed = []
    for number, (cohort, system) in enumerate(sparse):
        work.report(f"attack on N={cohort.clients}, {system.label}", number, len(sparse))
        revealed.append(work.cell(f"audit-{cohort.clients}-{system.key}", partial(audit, config, cohort, system, seed)))
    return found._replace(numbers=found.numbers | {"revealed": revealed})


def audit(config: Config, cohort: Cohort, system: System, seed: int) -> dict[str, Any]:
    """Return what server and colluders read of real rounds, and what the paper counts as revealed."""
    params = Parameters.create(
        clients=cohort.clients,
        dim=config.audit_dim,
        pattern=system.aggregator,
        alpha=system.alpha,
        dropout=config.training.dropout,
        modulus_bits=system.modulus_bits,
        committee_size=system.committee_size,
    )
    report = run_audit(AuditSettings(params, ADVERSARIES, config.audit_rounds, seed)).as_json()
    kept = ("pattern", "clients", "alpha_effective", "singled_out_fraction", "revealed_fraction", "values")
    # The paper's Figure 5c has the fewest and the most of single rounds, which patterns alone decide.
    drawn = sample(params, (config.training.dropout,), ADVERSARIES, config.audit_rounds, (seed, cohort.clients))
    (rounds,) = drawn.values()
    extremes = {
        name: share_of_rounds(rounds, name, among)
        for name, among in (("singled_out", "values"), ("revealed", "opened"))
    }
    return {key: report[key] for key in kept} | {"label": system.label, "rounds": extremes}
