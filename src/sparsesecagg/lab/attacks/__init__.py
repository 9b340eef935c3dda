"""Attacks on the protocol, each played against the real code and against a control.

base         what an attack is, and how it is played
world        real clients, a real set-up, and the adversary in the server's place
headers      different members, mask keys, contexts or tags for different users; second headers
shares       survivors that are not, shares asked for twice, rounds run again
identities   impostors, groups of the server's choice, rosters, epochs, what stays on disk
questions    what refusals tell, parameters that nobody should accept, differences of sums, sparse graphs
users        users that lie: tags, shares, packages, weights
flower       the same kind of server against the mod for Flower, if that is installed; flower_world, local_grid: its
             nodes, in one process

The package itself has no switch that takes a check out; the controls replace it from here, while they run.
"""

from sparsesecagg.lab.attacks import headers, identities, questions, shares, users  # noqa: F401  # They enter attacks.
from sparsesecagg.lab.attacks.base import ATTACKS, MODES, Attack, AttackOutcome, Mode, Setting, flower_installed, run

if flower_installed():
    from sparsesecagg.lab.attacks import flower  # noqa: F401

__all__ = ["ATTACKS", "MODES", "Attack", "AttackOutcome", "Mode", "Setting", "flower_installed", "run"]
