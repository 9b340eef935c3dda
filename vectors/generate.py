"""Write the test vectors again: `python -m vectors.generate`. The same bytes come out every time."""

from __future__ import annotations

from pathlib import Path

from vectors import blocks, public, rounds, wire
from vectors.failures import make_failures
from vectors.form import Vector, to_json
from vectors.plans import make_rounds

FOLDER = Path(__file__).parent / "v1"


def make_all() -> dict[str, str]:
    """Return the content of each file by its name."""
    vectors: dict[str, Vector] = {
        "digest_and_derive": blocks.digest_and_derive(),
        "x25519_agreement": blocks.x25519_agreement(),
        "seeds_and_commitments": blocks.seeds_and_commitments(),
        "shamir": blocks.shamir_sharing(),
        "sealing": blocks.sealing_and_confirming(),
        "mask_stream": blocks.mask_stream(),
        "roster": blocks.roster(),
        "gap_sampling": public.gap_sampling(),
        "share_graph": public.share_graphs(),
        "committees": public.committees(),
        "full_layout": public.full_layouts(),
        "quantise": public.quantisation(),
        "parameters": wire.parameters(),
        "messages": wire.messages(),
        "packing": wire.packing(),
        "locations": wire.locations(),
    }
    vectors |= {name: rounds.run(name, plan) for name, plan in make_rounds().items()}
    vectors |= make_failures(vectors)
    return {f"{name}.json": to_json(vector) for name, vector in vectors.items()}


def main() -> None:
    """Write every file, and remove those that are no longer made."""
    made = make_all()
    for old in set(FOLDER.glob("*.json")) - {FOLDER / name for name in made}:
        old.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    print(f"{len(made)} files, {sum(len(text.encode()) for text in made.values())} bytes")


if __name__ == "__main__":
    main()
