"""The program `sparsesecagg`: the commands of the product and those of the lab.

train, reproduce   training, and the paper's figures
audit, attack      what a server reads
report             run folders, drawn and compared
doctor             what to change in a Flower app
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import typer

from sparsesecagg.cli import make_app
from sparsesecagg.cli.errors import run


def whole_program() -> typer.Typer:
    """Return the program with all commands."""
    from sparsesecagg.lab.cli import attack, audit, doctor, report, reproduce, train

    app = make_app()
    for command, example in (
        (audit.audit, "audit --pattern pairwise --clients 30 --colluding 0.1 --rounds 3"),
        (attack.attack, "attack all --authenticated"),
        (train.train, "train --seeds 0,1,2 --compare sliced:0.1:8,secagg,plain"),
        (report.report, "report runs/* --table latex"),
        (doctor.doctor, "doctor my-flower-app"),
        (reproduce.reproduce, "reproduce table1 --quick"),
    ):
        app.command(epilog=f"Example: sparsesecagg {example}")(command)
    return app


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program and exit: 0 on success, 2 on bad input, 1 on a failed round, 130 after Ctrl-C."""
    run(whole_program(), arguments)
