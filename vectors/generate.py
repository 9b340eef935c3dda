"""Write the test vectors again: `python -m vectors.generate`. The same bytes come out every time."""

from __future__ import annotations

from pathlib import Path

from vectors import blocks, public, wire
from vectors.failures import make_failures
from vectors.form import Vector, to_json
from vectors.plans import make_runs

FOLDER = Path(__file__).parent / "v3"


def make_all() -> dict[str, str]:
    """Return the content of each file by its name."""
    vectors: dict[str, Vector] = {
        "digest_and_derive": blocks.digest_and_derive(),
        "x25519_agreement": blocks.x25519_agreement(),
        "ratchets": blocks.ratchets(),
        "packages": blocks.packages(),
        "shamir": blocks.shamir_sharing(),
        "false_shares": blocks.false_shares(),
        "mask_stream": blocks.mask_stream(),
        "roster": blocks.make_roster(),
        "groups": public.groups(),
        "slices": public.slices(),
        "gap_sampling": public.gap_sampling(),
        "quantise": public.quantisation(),
        "skellam": public.skellam(),
        "parameters": wire.parameters(),
        "messages": wire.messages(),
        "packing": wire.packing(),
        "locations": wire.locations(),
    }
    vectors |= make_runs()
    vectors |= make_failures(vectors)
    return {f"{name}.json": to_json(vector) for name, vector in vectors.items()}


def main() -> None:
    """Write every file, and remove those that are no longer made."""
    FOLDER.mkdir(exist_ok=True)
    made = make_all()
    for old in set(FOLDER.glob("*.json")) - {FOLDER / name for name in made}:
        old.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    print(f"{len(made)} files, {sum(len(text.encode()) for text in made.values())} bytes")


if __name__ == "__main__":
    main()
