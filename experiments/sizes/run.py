"""Measure one round per protocol at the paper's setting, write results/sizes.json, and the README's table from it.

    .venv/bin/python -m experiments.sizes.run

One simulated round each: 100 users, 165,000 coordinates, α = 0.1, θ = 0.3. Bytes do not depend on the machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from sparsesecagg import __version__

ROOT = Path(__file__).parents[2]
RESULTS, README = ROOT / "results" / "sizes.json", ROOT / "README.md"
BEGIN, END = "<!-- table: results/sizes.json -->\n", "<!-- end -->\n"
COMMON = ["--clients", "100", "--dim", "165000", "--dropout", "0.3", "--alpha", "0.1", "--seed", "0", "--json"]
PAIRWISE = "SparseSecAgg as published (`pairwise`)"
SECAGG, SHORT, SPARSE = "SecAgg", "SecAgg, 16-bit words", "`committee`, 16-bit words"
SYSTEMS = {
    SECAGG: ["--pattern", "full"],
    SHORT: ["--pattern", "full", "--modulus-bits", "16"],
    PAIRWISE: ["--pattern", "pairwise"],
    "`committee`, 32-bit words": ["--pattern", "committee"],
    SPARSE: ["--pattern", "committee", "--modulus-bits", "16"],
    "`committee`, 8-bit words": ["--pattern", "committee", "--modulus-bits", "8"],
}


def main() -> None:
    """Measure, save, publish."""
    rounds = {name: simulate([*options, *COMMON]) for name, options in SYSTEMS.items()}
    result = {
        "command": "python -m experiments.sizes.run",
        "version": __version__,
        "commit": git("rev-parse", "--short", "HEAD"),
        "options": COMMON,
        "rounds": rounds,
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    publish(rounds)


def simulate(options: list[str]) -> dict[str, Any]:
    """Run the command as a user would; keep what does not depend on the machine."""
    command = [sys.executable, "-c", "from sparsesecagg.cli import main; main()", "simulate", *options]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)  # noqa: S603
    kept = ("exact", "survivors", "alpha_effective", "upload_bytes", "sent_bytes", "received_bytes", "contributors")
    return {key: found[key] for key in kept}


def publish(rounds: dict[str, Any]) -> None:
    """Write the README's table."""
    README.write_text(published(README.read_text(encoding="utf-8"), rounds), encoding="utf-8")


def published(document: str, rounds: dict[str, Any]) -> str:
    """Return the document with its table as the results have it."""
    before, rest = document.split(BEGIN)
    return before + BEGIN + table(rounds) + END + rest.split(END, 1)[1]


def table(rounds: dict[str, Any]) -> str:
    """Return bytes by protocol, and how much of the saving is due to what."""
    secagg = all_bytes(rounds[SECAGG])
    lines = [
        "| protocol | largest upload, bytes | all messages, bytes | against SecAgg |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, found in rounds.items():
        everything = all_bytes(found)
        lines.append(f"| {name} | {found['upload_bytes']['max']:,} | {everything:,.0f} | {secagg / everything:.1f}× |")
        if name == PAIRWISE:
            mean = papers_format(found["alpha_effective"])
            lines.append(
                f"| the same with the paper's bitmap of locations, on average, computed | {mean:,.0f} | – | – |"
            )
    short, sparse = all_bytes(rounds[SHORT]), all_bytes(rounds[SPARSE])
    lines += [
        "",
        f"Of the {secagg / sparse:.1f}× of committees with 16-bit words, shorter words give {secagg / short:.1f}× and "
        f"sparsity {short / sparse:.1f}×; keys and shares stay.",
    ]
    return "\n".join(lines) + "\n"


def all_bytes(found: dict[str, Any]) -> float:
    """Return what a user sends and receives in a round, without the model."""
    return float(found["sent_bytes"]["total"] + found["received_bytes"]["total"])


def papers_format(share: float) -> float:
    """Return the bytes of an upload with 32 bits per value and one per coordinate: d(32p + 1) bits."""
    dim = int(COMMON[COMMON.index("--dim") + 1])
    return dim * (32 * share + 1) / 8


def git(*arguments: str) -> str:
    """Return what git says."""
    command = ["git", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()  # noqa: S603


if __name__ == "__main__":
    main()
