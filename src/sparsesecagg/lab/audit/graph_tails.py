"""Whether enough holders of a user's shares survive in a k-regular share graph (SecAgg+).

Source: Bell, Bonawitz, Gascón, Lepoint, Raykova, "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead",
CCS 2020 (ePrint 2020/704), the section on choosing the number of neighbours and the threshold. We differ in one point:
dropouts are independent (binomial), as in the paper of SparseSecAgg, rather than a fixed number.
"""

from __future__ import annotations

from sparsesecagg.privacy.tails import log_binomial_below


def log_holders_missing(degree: int, dropout: float, threshold: int) -> float:
    """Return ln P[fewer than `threshold` of one user's `degree` neighbours survive].

    A survivor has its own share too, a dropped user's is lost: the latter is the worse case and is used for all.
    """
    return log_binomial_below(degree, 1 - dropout, threshold)
