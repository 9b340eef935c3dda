"""Attacks on the protocol, each played against the real code and against a control.

base      what an attack is, and how it is run
world     real clients, a real set-up, and tools for a server that lies
views     different members, heads, tags or survivors for different users
repeats   copies of state, rounds that are run again
orders    other terms, second orders, thin committees, users that are left out
keys      impostors, groups of the server's choice
watching  all sums of many rounds, kept and solved
inputs    parameters, weights, values and shares that nobody should accept; sparse graphs
flower    the same kind of server against the mod of the Flower engine, if that is installed; flower_world, local_grid:
          its nodes, in one process

The package itself has no switch that takes a check out; the controls replace it from here, while they run.
"""

from sparsesecagg.lab.attacks import flower, inputs, keys, orders, repeats, views, watching
from sparsesecagg.lab.attacks.base import Attack, AttackOutcome, Mode, Setting, run

ATTACKS: dict[str, Attack] = {
    attack.name: attack
    for module in (views, repeats, orders, keys, watching, inputs, flower)
    for attack in module.ATTACKS
}

__all__ = ["ATTACKS", "Attack", "AttackOutcome", "Mode", "Setting", "run"]
