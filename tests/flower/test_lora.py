"""The LoRA example: adapters of a transformer are averaged under masks, and the frozen part does not travel."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "lora"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the function that runs the example."""
    pytest.importorskip("transformers", reason="the LoRA example needs transformers")
    pytest.importorskip("peft", reason="the LoRA example needs peft")
    import torch

    torch.set_num_threads(1)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    from in_process import run  # type: ignore[import-not-found]

    yield run
    for name in [name for name in sys.modules if name.split(".")[0] in ("lora_app", "in_process")]:
        del sys.modules[name]


def test_adapters_are_averaged_and_bytes_are_printed(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    small = {"num-server-rounds": 2, "local-epochs": 1, "samples-per-node": 16, "hidden": 16}
    example(6, **small)
    printed = capsys.readouterr().out.splitlines()
    first, *rounds = [line for line in printed if "in adapters" in line or "per node" in line]
    everything, adapters = (int(word.replace(",", "")) for word in first.split() if word.replace(",", "").isdigit())
    assert 5 * adapters < everything
    assert len(rounds) == 2
    sent = [int(line.split("per node ")[1].split(" bytes")[0].replace(",", "")) for line in rounds]
    assert all(adapters / 5 < each < 4 * everything for each in sent)  # A fifth of the adapters, and no frozen ones.


def test_four_lines_make_it_secure() -> None:
    lines = [
        line
        for name in ("client_app.py", "server_app.py")
        for line in (EXAMPLE / "lora_app" / name).read_text(encoding="utf-8").split('"""', 2)[2].splitlines()
        if "secagg" in line.lower()
    ]
    assert len(lines) == 4
