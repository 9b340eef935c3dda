"""Run examples/notebook.ipynb and write it back with what it printed and drew (`make notebook`).

Only sources and outputs are kept: nothing in the file depends on when, where or how often it was run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent / "notebook.ipynb"


def executed(path: Path = NOTEBOOK) -> Any:
    """Return the notebook after a run from top to bottom; raises if a cell does."""
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(path.parents[1])}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources=where).execute()
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    for number, cell in enumerate(notebook.cells):
        if "outputs" in cell:
            cell.outputs = joined(cell.outputs)
        cell.id, cell.metadata = f"cell-{number}", {}
        for output in cell.get("outputs", []):
            if "data" in output:
                output.data.pop("text/html", None)
                if "image/png" in output.data:
                    output.data.pop("text/plain", None)  # The address of an object in memory.
            output.get("metadata", {}).clear()
    return notebook


def joined(outputs: list[Any]) -> list[Any]:
    """Return the outputs with printed lines in one piece: how they come in pieces is a matter of timing."""
    found: list[Any] = []
    for output in outputs:
        if found and output.output_type == found[-1].output_type == "stream" and output.name == found[-1].name:
            found[-1].text += output.text
        else:
            found.append(output)
    return found


if __name__ == "__main__":
    nbformat.write(executed(), NOTEBOOK)
