"""The independent verifier accepts the vectors, rejects changed ones, and owes nothing to the package."""

import ast
import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "vectors" / "v3"
VERIFIER = [ROOT / "vectors" / "verify.py", *sorted((ROOT / "vectors" / "verifier").glob("*.py"))]
BLOCKED = ["sparsesecagg", "numpy", "msgspec"]
BLOCKED_RUN = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({BLOCKED}))
runpy.run_module("vectors.verify", run_name="__main__", alter_sys=True)
"""
Place = tuple[Any, Any]  # A JSON object or array, and a key or index in it.


def verify(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the verifier as a user would."""
    command = [sys.executable, "-m", "vectors.verify", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603


def results(run: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Return `ok` or `FAIL` for each file."""
    lines = [line.split("  ") for line in run.stdout.splitlines() if line.startswith(("ok", "FAIL"))]
    return {name: result for result, name, _ in lines}


def counts(run: subprocess.CompletedProcess[str]) -> tuple[int, int]:
    """Return the numbers of the closing line."""
    closing = re.fullmatch(r"(\d+) passed, (\d+) failed", run.stdout.splitlines()[-1])
    assert closing, run.stdout + run.stderr
    return int(closing[1]), int(closing[2])


def read(name: str) -> Any:
    return json.loads((VECTORS / f"{name}.json").read_text("utf-8"))


def write(folder: Path, name: str, document: Any) -> None:
    (folder / f"{name}.json").write_text(json.dumps(document), "utf-8")


def is_failures(document: Any) -> bool:
    return "operation" in document.get("cases", [{}])[0]


ALL = sorted(path.stem for path in VECTORS.glob("*.json"))
FAILURES = [name for name in ALL if is_failures(read(name))]
BLOCKS_AND_RUNS = [name for name in ALL if name not in FAILURES]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the vectors."""
    return shutil.copytree(VECTORS, tmp_path / "v3")


def test_all_vectors_pass_without_the_package() -> None:
    run = subprocess.run([sys.executable, "-c", BLOCKED_RUN], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    assert run.returncode == 0, run.stdout + run.stderr
    assert results(run) == dict.fromkeys(ALL, "ok")
    passed, failed = counts(run)
    assert passed > len(ALL)
    assert failed == 0


@pytest.mark.parametrize("path", VERIFIER, ids=lambda path: path.stem)
def test_it_imports_only_the_standard_library_cryptography_and_itself(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(str(node.module))
    own = {name for name in imported if name.split(".")[:2] == ["vectors", "verifier"]}
    assert {name.split(".")[0] for name in imported - own} <= {*sys.stdlib_module_names, "cryptography"}


def hexadecimals(value: Any) -> Iterator[Place]:
    """Find all byte strings of a document on which something else in it depends."""
    if isinstance(value, dict) and value.get("positions") == [] and "pattern_seed" in value:
        return  # Other seeds give an empty pattern too.
    items = list(value.items() if isinstance(value, dict) else enumerate(value))
    if isinstance(value, dict) and "randomness" in value:
        yield from ((value["randomness"], place) for place in observed(value["randomness"]))
        return
    if isinstance(value, dict) and "coordinates" in value and "group" in value:
        return  # A parameter, or a draw of the seed, may change nothing in a slice: `changed` sees to those.
    for key, item in items:
        if isinstance(item, dict | list):
            yield from hexadecimals(item)
        elif isinstance(item, str) and re.fullmatch("([0-9a-f]{2})+", item):
            yield value, key


def observed(draws: list[str]) -> Iterator[int]:
    """Find the draws of a user that show in its messages: not the rounding seeds, which are its own affair."""
    place = 0
    while place < len(draws):
        sizes = [len(draw) // 2 for draw in draws[place : place + 3]]
        count = 1 if sizes[:1] == [32] else 3 if sizes == [16, 16, 32] else 0
        yield from range(place, place + count)
        place += count or 1


def flip(place: Place) -> None:
    """Change the digit in the middle by one bit. (Some outer bits of X25519 keys never matter.)"""
    container, key = place
    text = container[key]
    middle = len(text) // 2
    container[key] = text[:middle] + f"{int(text[middle], 16) ^ 1:x}" + text[middle + 1 :]


def changed(name: str, choice: random.Random) -> Any:
    """Return a building block or run with one digit changed."""
    document = read(name)
    places = list(hexadecimals(document))
    if places:
        flip(choice.choice(places))
    elif name == "slices":
        section, key = choice.choice([("blocks", "block"), ("blocks", "part"), ("cases", "round")])
        choice.choice(document[section][:9])[key] += 1
    else:
        document["fit"][0]["limit"] += 1
    return document


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_one_changed_digit_is_found_in_every_building_block_and_run(tmp_path: Path, seed: int) -> None:
    for name in BLOCKS_AND_RUNS:
        write(tmp_path, name, changed(name, random.Random(f"{name} {seed}")))
    run = verify(tmp_path)
    assert run.returncode == 1
    assert results(run) == dict.fromkeys(BLOCKS_AND_RUNS, "FAIL")


def harmless(name: str) -> Any:
    """Return failures with a case that is not what it claims to be, if possible by one digit."""
    document = read(name)
    case = document["cases"][0]
    match name:
        case "bad_parameters":
            assert case["bytes"].startswith("dc001202")
            case["bytes"] = "dc001203" + case["bytes"][8:]
        case "bad_roster":
            case["run"] = read("roster")["run"]
        case "padding_not_zero":
            assert case["bytes"] == "ff1f"
            case["bytes"] = "ff0f"
        case "too_few":
            case["after"] += 1
        case "bad_seal":
            case["round_secret"] = document["cases"][1]["round_secret"]
        case "bad_epoch":
            case["epoch"] -= 1
        case "truncated_message":
            case = next(case for case in document["cases"] if "checksum flipped" in case["about"])
            whole = next(
                step["bytes"]
                for step in read(case["run"])["steps"]
                if step.get("bytes", "")[:-16] == case["bytes"][:-16]
            )
            assert sum(a != b for a, b in zip(whole, case["bytes"], strict=True)) == 1
            case["bytes"] = whole
        case _:
            flip((next(case for case in document["cases"] if "run" in case and "bytes" in case), "bytes"))
    return document


def test_a_failure_that_is_not_what_it_claims_is_found_in_every_file(folder: Path) -> None:
    for name in FAILURES:
        write(folder, name, harmless(name))
    run = verify(folder)
    assert run.returncode == 1
    assert results(run) == dict.fromkeys(FAILURES, "FAIL") | dict.fromkeys(BLOCKS_AND_RUNS, "ok")
    assert counts(run)[1] == len(FAILURES)


@pytest.mark.slow
def test_another_error_than_the_page_demands_is_found_in_every_case(folder: Path) -> None:
    cases = 0
    for name in FAILURES:
        document = read(name)
        for case in document["cases"]:
            case["error"] = "WrongBinding" if case["error"] != "WrongBinding" else "WrongRound"
            cases += 1
        write(folder, name, document)
    assert counts(verify(folder))[1] == cases


def test_unknown_unread_and_missing_files_are_failures(tmp_path: Path) -> None:
    names = [name for name in BLOCKS_AND_RUNS if not name.startswith("run_")]
    for name in names:
        write(tmp_path, name, read(name))
    (tmp_path / "packing.json").unlink()
    write(tmp_path, "surprise", {"about": "Something new.", "cases": [{"bytes": "00"}]})
    write(tmp_path, "locations", {"about": "No cases.", "cases": []})
    write(tmp_path, "slices", read("slices") | {"more": [1]})
    (tmp_path / "broken.json").write_text("{", "utf-8")
    (tmp_path / "notes.txt").write_text("not a vector", "utf-8")
    failed = ["packing", "surprise", "locations", "slices", "broken", "notes"]
    run = verify(tmp_path)
    assert run.returncode == 1
    assert results(run) == dict.fromkeys(names, "ok") | dict.fromkeys(failed, "FAIL")
