"""The computed table of docs/weakness.md: the published pattern at settings other than those that were attacked."""

from __future__ import annotations

from experiments.theory.formulas import anonymity, pairwise_singled_out_fraction
from sparsesecagg.lab.audit.theory import pairwise_revealed_fraction
from sparsesecagg.privacy.anonymity import colluder_count

CLIENTS, THIRD = 100, 1 / 3
SETTINGS = (
    (0.1, 0.06, 0.0),
    (0.1, 0.1, 0.0),
    (0.1, 0.06, THIRD),
    (0.1, 0.1, THIRD),
    (0.1, 0.3, THIRD),
    (1.0, 0.3, THIRD),
)
"""α, θ, γ."""
BEGIN, END = "<!-- computed -->\n", "<!-- end -->\n"


def published(document: str) -> str:
    """Return the document with its table computed anew."""
    before, rest = document.split(BEGIN)
    return before + BEGIN + "".join(f"{line}\n" for line in rows()) + END + rest.split(END, 1)[1]


def rows() -> list[str]:
    """Return the heading and one line per setting."""
    found = ["| α | θ | γ | T | singled out, as the paper counts | read in the clear |", "|" + " --- |" * 6]
    for alpha, dropout, colluding in SETTINGS:
        setting = (alpha, CLIENTS, dropout, colluding)
        users = anonymity(alpha, CLIENTS, dropout, colluder_count(CLIENTS, colluding) / CLIENTS)
        counted, read = pairwise_singled_out_fraction(*setting), pairwise_revealed_fraction(*setting)
        share = "1/3" if colluding else "0"
        found.append(
            f"| {alpha:g} | {dropout:g} | {share} | {users:.1f} | {100 * counted:.2f} % | {100 * read:.1f} % |"
        )
    return found
