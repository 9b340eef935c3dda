"""What a run leaves behind: counts, scores, survivors; and on this machine what was noticed."""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from mutation import CACHE, ROOT
from mutation.changes import Module, Mutant
from mutation.coverage import EXAMPLES

RESULTS = ROOT / "results" / "mutation.json"
JUDGEMENTS = Path(__file__).parent / "equivalent.json"
OUTCOMES = CACHE / "outcomes.jsonl"


def note(module: Module, mutant: Mutant, outcome: str) -> str:
    """Show what became of a mutant, a survivor in full, and write it down for `--again`."""
    sys.stderr.write("." if outcome else f"\nsurvived: {'CHECK ' * mutant.check}{mutant.line} {mutant.name}\n")
    with OUTCOMES.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"mutant": mutant.name, "source": _sha256(module, mutant), "noticed": outcome}) + "\n")
    return outcome


def remembered(modules: dict[str, Module]) -> dict[str, str]:
    """Return what became of mutants in earlier runs, of functions that are still the same."""
    lines = OUTCOMES.read_text(encoding="utf-8").splitlines() if OUTCOMES.exists() else []
    notes = {(each["mutant"], each["source"]): each["noticed"] for each in map(json.loads, lines)}
    known = [(mutant.name, _sha256(module, mutant)) for module in modules.values() for mutant in module.mutants]
    return {key[0]: notes[key] for key in known if key in notes}


def is_settled(name: str, found: dict[str, str]) -> bool:
    """Tell whether a mutant need not run again; a survivor does, since there may be a test for it now."""
    return name in found and (bool(found[name]) or what_of(name) in _reasons())


def summary(mutants: list[Mutant], found: dict[str, str]) -> dict[str, Any]:
    """Return everything that is worth keeping."""
    from sparsesecagg.protocol.parameters import VERSION  # Not before mutants at import have met their tests.

    reasons = _reasons()
    survivors: list[dict[str, Any]] = []
    for mutant in [mutant for mutant in mutants if found.get(mutant.name) == ""]:
        survivors.append({"mutant": mutant.name, "line": mutant.line, "kind": mutant.kind, "check": mutant.check})
        if what_of(mutant.name) in reasons:
            survivors[-1]["equivalent"] = reasons[what_of(mutant.name)]
    files = dict.fromkeys(mutant.file for mutant in mutants)
    checks, others = ([mutant for mutant in mutants if mutant.check is wanted] for wanted in (True, False))
    return {
        "command": " ".join(["PYTHONPATH=tests python -m mutation", *sys.argv[1:]]),
        "protocol": VERSION,
        "commit": _commit(),
        "complete": all(mutant.name in found for mutant in mutants),
        "examples_per_hypothesis_test": EXAMPLES,
        "total": _counts(mutants, found, reasons),
        "checks": _counts(checks, found, reasons),
        "others": {**_counts(others, found, reasons), "two_sigma": _two_sigma(others, found)},
        "files": {file: _counts([m for m in mutants if m.file == file], found, reasons) for file in files},
        "timeouts": sorted(name for name, outcome in found.items() if outcome == "timeout"),
        "survivors": survivors,
    }


def what_of(name: str) -> str:
    """Return a mutant's name without its file: code that moves behaves as it did."""
    return name.split("::", 1)[1]


@cache
def _reasons() -> dict[str, str]:
    """Return the mutants that behave like the original, and why."""
    judgements = json.loads(JUDGEMENTS.read_text(encoding="utf-8"))
    return {what_of(name): each["reason"] for each in judgements for name in each["mutants"]}


def _counts(mutants: list[Mutant], found: dict[str, str], reasons: dict[str, str]) -> dict[str, Any]:
    """Count; `score` takes every survivor as a hole, `score_without_equivalent` those that were not judged harmless."""
    outcomes = {mutant.name: found[mutant.name] for mutant in mutants if mutant.name in found}
    alive = [name for name, outcome in outcomes.items() if not outcome]
    equivalent = sum(what_of(name) in reasons for name in alive)
    late = sum(outcome == "timeout" for outcome in outcomes.values())
    noticed = len(outcomes) - len(alive)
    return {
        "mutants": len(mutants),
        "run": len(outcomes),
        "killed": noticed - late,
        "timeout": late,
        "survived": len(alive),
        "equivalent": equivalent,
        "score": round(noticed / max(1, len(outcomes)), 4),
        "score_without_equivalent": round(noticed / max(1, len(outcomes) - equivalent), 4),
    }


def _two_sigma(mutants: list[Mutant], found: dict[str, str]) -> float:
    """Return twice the standard error of the score of a sample; 0 when all ran."""
    ran = [bool(found[mutant.name]) for mutant in mutants if mutant.name in found]
    score = sum(ran) / max(1, len(ran))
    return round(2 * math.sqrt(score * (1 - score) / max(1, len(ran)) * (1 - len(ran) / max(1, len(mutants)))), 4)


def _sha256(module: Module, mutant: Mutant) -> str:
    return hashlib.sha256(module.source_of(mutant).encode()).hexdigest()


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603
