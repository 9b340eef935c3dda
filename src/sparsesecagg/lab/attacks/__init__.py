"""Attacks on the protocol, each played against the real code and against a control.

base         what an attack is, and how it is played
world        real clients, a real set-up, and the adversary in the server's place
rounds       different members, mask keys, contexts, tags or survivors for different users; the same asked for twice
identities   impostors, groups of the server's choice, rosters, epochs, what stays on disk
questions    what refusals tell, parameters that nobody should accept, differences of sums, sparse graphs
users        users that lie: tags, shares, packages, weights
flower       the same kind of server against the mod for Flower, if that is installed, in a flower_world of nodes in
             one process (local_grid)

The package itself has no switch that takes a check out; the controls replace it from here, while they run.
"""

from sparsesecagg.lab.attacks import identities, questions, rounds, users  # noqa: F401  # They enter attacks.
from sparsesecagg.lab.attacks.base import ATTACKS, MODES, Attack, AttackOutcome, Mode, Setting, flower_installed, run

if flower_installed():
    from sparsesecagg.lab.attacks import flower  # noqa: F401

__all__ = ["ATTACKS", "MODES", "Attack", "AttackOutcome", "Mode", "Setting", "flower_installed", "run"]
