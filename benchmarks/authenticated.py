"""What authentication costs a client: plain and authenticated rounds in turn, in one run.

    .venv/bin/python -m benchmarks.authenticated [--clients 100] [--dim 165000] [--json]

Enrolment happens once per training run and is left out; so are the secrets of the run keys, agreed on once per run.
"""

from __future__ import annotations

import argparse
import json
import statistics

import numpy as np

from sparsesecagg.protocol import RoundParameters, run_round
from sparsesecagg.protocol.simulation import make_identities, seeded_entropy


def main() -> None:
    """Measure, print the medians and their ratio."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--dim", type=int, default=165_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    people = make_identities(options.clients, "benchmark", seeded_entropy(0))
    update = np.random.default_rng(0).standard_normal(options.dim).astype(np.float32) / 4
    settings = {"clients": options.clients, "dim": options.dim, "alpha": 0.1, "modulus_bits": 16}
    plain = RoundParameters.create(**settings)
    # The same threshold in both, so that only authentication differs.
    signed = RoundParameters.create(**settings, roster_digest=people[0].roster.digest)
    plain = plain.replace(threshold=signed.threshold)
    seconds: dict[str, list[float]] = {"plain": [], "authenticated": []}
    for _ in range(options.repeats + 1):
        for name, params, identities in (("plain", plain, None), ("authenticated", signed, people)):
            seconds[name].append(run_round(params, lambda _: update, identities=identities).client_seconds["total"])
    medians = {name: statistics.median(values[1:]) for name, values in seconds.items()}  # The first warms up.
    ratio = medians["authenticated"] / medians["plain"]
    if options.json:
        print(json.dumps({"client_seconds": medians, "ratio": ratio, "settings": vars(options)}))
    else:
        plain_ms, signed_ms = (1000 * medians[name] for name in ("plain", "authenticated"))
        print(f"plain {plain_ms:.1f} ms, authenticated {signed_ms:.1f} ms: {ratio:.2f}×")


if __name__ == "__main__":
    main()
