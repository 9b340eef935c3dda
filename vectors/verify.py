"""Verify the test vectors without the package: `python -m vectors.verify [folder]`.

Prints one line per file and ends with 'N passed, M failed', counted in cases. The exit code is 0 only if all pass.
A file of an unknown kind fails, and so does a building block without its file. How: see `vectors/verifier`.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from vectors.verifier.blocks import BUILDING_BLOCKS, checks_of_blocks
from vectors.verifier.comparing import Case, Check, Mismatch
from vectors.verifier.failures import checks_of_failures, is_failures
from vectors.verifier.runs import checks_of_run

FOLDER = Path(__file__).parent / "v3"
RUN = "run_"


def checks_of(name: str, documents: Mapping[str, Case]) -> Iterator[Check]:
    """Return the checks of a file, by its kind."""
    document = documents.get(name)
    if document is None:
        raise Mismatch("no such file, or no JSON object in it")
    if not isinstance(document.get("about"), str):
        raise Mismatch("no `about`")
    if name in BUILDING_BLOCKS:
        return checks_of_blocks(name, documents)
    if name.startswith(RUN):
        return checks_of_run(document)
    if is_failures(document):
        return checks_of_failures(name, document, documents)
    raise Mismatch("a file of an unknown kind")


def verify_file(name: str, documents: Mapping[str, Case]) -> tuple[int, list[str]]:
    """Check one file; return how many cases passed, and what is wrong with the others."""
    passed, problems = 0, []
    try:
        for what, check in checks_of(name, documents):
            try:
                check()
                passed += 1
            except Exception as error:  # Whatever a vector does to the verifier, it is not what it should be.
                problems.append(f"{what}: {type(error).__name__}: {error}")
    except Exception as error:
        problems.append(f"{type(error).__name__}: {error}")
    if not passed and not problems:
        problems.append("no cases")
    return passed, problems


def read_folder(folder: Path) -> dict[str, Case]:
    """Read all files of a folder; one that is no JSON object stays out, and is found missing."""
    documents = {}
    for path in folder.glob("*.json"):
        try:
            document = json.loads(path.read_text("utf-8"))
        except ValueError:
            continue
        if isinstance(document, dict):
            documents[path.stem] = document
    return documents


def main(folder: Path = FOLDER) -> int:
    """Check all files of a folder, and say so."""
    documents = read_folder(folder)
    names = {path.stem for path in folder.iterdir()} | set(BUILDING_BLOCKS)
    all_passed = all_failed = 0
    for name in sorted(names):
        passed, problems = verify_file(name, documents)
        all_passed += passed
        all_failed += len(problems)
        print(f"FAIL  {name}  {len(problems)} problems" if problems else f"ok  {name}  {passed} cases")
        for problem in problems:
            print(f"      {problem}")
    print(f"{all_passed} passed, {all_failed} failed")
    return 1 if all_failed else 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:2])))
