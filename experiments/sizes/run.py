"""Measure one round per protocol at the paper's setting, write results/sizes.json, and the README's table from it.

    .venv/bin/python -m experiments.sizes.run

One simulated round each: 100 users, 165,000 coordinates, α = 0.1, θ = 0.3. Bytes do not depend on the machine.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from sparsesecagg import __version__

ROOT = Path(__file__).parents[2]
RESULTS, README = ROOT / "results" / "sizes.json", ROOT / "README.md"
BEGIN, END = "<!-- table: results/sizes.json -->\n", "<!-- end -->\n"
COMMON = ["--clients", "100", "--dim", "165000", "--dropout", "0.3", "--alpha", "0.1", "--seed", "0", "--json"]
SYSTEMS = {
    "SecAgg": ["--pattern", "full"],
    "SparseSecAgg as published (`pairwise`)": ["--pattern", "pairwise"],
    "`committee`, 32-bit words": ["--pattern", "committee"],
    "`committee`, 16-bit words": ["--pattern", "committee", "--modulus-bits", "16"],
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
    command = [str(ROOT / ".venv" / "bin" / "sparsesecagg"), "simulate", *options]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)  # noqa: S603
    kept = ("exact", "survivors", "alpha_effective", "upload_bytes", "sent_bytes", "received_bytes", "contributors")
    return {key: found[key] for key in kept}


def publish(rounds: dict[str, Any]) -> None:
    """Write the README's table; the published pattern is in it in our coding of locations, and in the paper's."""
    README.write_text(published(README.read_text(encoding="utf-8"), rounds), encoding="utf-8")


def published(page: str, rounds: dict[str, Any]) -> str:
    """Return the page with the table."""
    secagg = rounds["SecAgg"]["upload_bytes"]["max"]
    lines = [
        "| protocol | largest upload, bytes | against SecAgg | all stages, bytes sent |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, found in rounds.items():
        upload = found["upload_bytes"]["max"]
        lines.append(f"| {name} | {upload:,} | {secagg / upload:.1f}× | {found['sent_bytes']['total']:,.0f} |")
        if "`pairwise`" in name:
            mean = papers_format(found["alpha_effective"])
            lines.append(
                f"| the same in the paper's format (a bitmap of locations), on average, computed | {mean:,.0f} | "
                f"{secagg / mean:.1f}× | – |"
            )
    before, rest = page.split(BEGIN)
    after = rest.split(END, 1)[1]
    return before + BEGIN + "\n".join(lines) + "\n" + END + after


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
