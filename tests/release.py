"""`make release`: build what would be uploaded, check it, and try it as a stranger would. Nothing leaves this machine.

The wheel is built from the source distribution, so a file missing from that one is noticed. Exits 1 at the first check
that fails; at the end it prints checksums and the commands that publish.
"""

from __future__ import annotations

import email
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "build" / "dist"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def main() -> None:
    """Build, check, try."""
    DIST.mkdir(parents=True, exist_ok=True)
    for old in DIST.glob("sparsesecagg-*"):
        old.unlink()
    with tempfile.TemporaryDirectory() as folder:
        source, wheel = build(Path(folder))
        version = check(source, wheel)
        try_out(wheel, Path(folder))
    for made in (source, wheel):
        say(f"{hashlib.sha256(made.read_bytes()).hexdigest()}  {made.relative_to(ROOT)}")
    say(f"\nReady. To publish: git tag --sign v{version} --file build/notes.md && git push origin v{version}")


def build(folder: Path) -> tuple[Path, Path]:
    """Return the source distribution, and the wheel made from it."""
    backend = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    run(sys.executable, "-c", backend, DIST, cwd=ROOT)
    (source,) = DIST.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.glob("sparsesecagg-*")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", DIST, unpacked)
    (wheel,) = DIST.glob("*.whl")
    return source, wheel


def check(source: Path, wheel: Path) -> str:
    """Compare metadata and contents with the project; write the release notes; return the version."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata_name,) = (name for name in names if name.endswith("METADATA"))
        metadata = email.message_from_string(archive.read(metadata_name).decode())
    version = metadata["Version"]
    expect("name", metadata["Name"], PROJECT["name"])
    expect("licence", metadata["License-Expression"], PROJECT["license"])
    expect("Python", metadata["Requires-Python"], PROJECT["requires-python"])
    expect("extras", sorted(metadata.get_all("Provides-Extra", [])), sorted(PROJECT["optional-dependencies"]))
    expect("README", metadata.get_payload() == (ROOT / "README.md").read_text(encoding="utf-8"), True)
    expect("top folders", {name.split("/")[0] for name in names}, {"sparsesecagg", f"sparsesecagg-{version}.dist-info"})
    expect("type information", "sparsesecagg/py.typed" in names, True)
    with tarfile.open(source) as archive:
        expect("licence in the source", f"sparsesecagg-{version}/LICENSE" in archive.getnames(), True)
    notes = release_notes(version)
    (ROOT / "build" / "notes.md").write_text(notes, encoding="utf-8")
    say(f"metadata of {version}: as declared; release notes: build/notes.md, {len(notes.splitlines())} lines")
    return str(version)


def release_notes(version: str) -> str:
    """Return the section of the changelog for a version."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(version)}\b.*?\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None or not found[1].strip():
        sys.exit(f"CHANGELOG.md must have a section for {version}, and has none")
    return f"sparsesecagg {version}\n\n{found[1].strip()}\n"


def try_out(wheel: Path, folder: Path) -> None:
    """Install the wheel in a fresh environment and use it."""
    venv.create(folder / "fresh", with_pip=True)
    programs = folder / "fresh" / "bin"
    run(programs / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet", wheel)
    run(programs / "sparsesecagg", "--help", cwd=folder)
    round_ = "simulate --clients 10 --dim 1000 --alpha 0.5 --dropout 0.1 --seed 1 --json".split()
    expect("simulate", json.loads(run(programs / "sparsesecagg", *round_, cwd=folder))["exact"], True)
    say("fresh environment: installs, prints its help, and an aggregate is exact")


def run(*words: object, cwd: Path | None = None) -> str:
    """Run a program and return what it prints."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, cwd=cwd)  # noqa: S603
    if done.returncode:
        sys.exit(f"{words[0]} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def expect(what: str, got: object, wanted: object) -> None:
    """Stop unless they are equal."""
    if got != wanted:
        sys.exit(f"{what} must be {wanted!r}, got {got!r}")


def say(line: str) -> None:
    """Print for whoever releases."""
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
