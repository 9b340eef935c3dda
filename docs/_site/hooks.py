"""What the site needs beside MkDocs: links that leave docs/, pictures of results, powers, and the notebook as a page.

On a code host a relative link such as ../examples/http/README.md just works. In the site it becomes a link to the code
host, and a picture from ../results is copied.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
_MARKUP = re.compile(r"(<(?:pre|code)\b.*?</(?:pre|code)>|<[^>]+>)", re.DOTALL)
_POWER = re.compile(r"\b(\d+|e)\^(−?(?:\d+|[a-z]+)\b)")
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((\.\./[^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Add the notebook, as Markdown, and the pictures of results."""
    files.append(File.generated(config, "notebook.md", content=notebook_page(json.loads(NOTEBOOK.read_text("utf-8")))))
    for path in sorted((ROOT / "results" / "plots").glob("*.svg")):
        files.append(File.generated(config, f"results/plots/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Turn links that leave docs/ into links that work from the site."""
    folder = (ROOT / "docs" / page.file.src_uri).parent

    def replaced(match: re.Match[str]) -> str:
        picture, text, path, anchor = match.groups()
        target = (folder / path).resolve()
        if not target.is_relative_to(ROOT):
            return match[0]
        if target.is_relative_to(ROOT / "docs"):
            return match[0]
        if not target.exists():
            raise FileNotFoundError(f"{page.file.src_uri} links to {path}, which does not exist")
        if target == NOTEBOOK and page.file.src_uri != "notebook.md":
            return f"[{text}](notebook.md)"
        inside = target.relative_to(ROOT).as_posix()
        if picture:
            return f"![{text}]({inside})"
        kind = "tree" if target.is_dir() else "blob"
        return f"[{text}]({config.extra['repository']}/{kind}/main/{inside}{anchor or ''})"

    return _LINK.sub(replaced, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Raise exponents in prose: 2^−40 reads well in plain text and badly on a page."""
    return "".join(
        part if part.startswith("<") else _POWER.sub(r"\1<sup>\2</sup>", part) for part in _MARKUP.split(html) if part
    )


def notebook_page(notebook: dict[str, Any]) -> str:
    """Return an executed notebook as Markdown: cells, what they printed, and what they drew."""
    parts: list[str] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts.extend(part for output in cell["outputs"] for part in _output(output))
    parts.append("The notebook itself: [examples/notebook.ipynb](../examples/notebook.ipynb).")
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> list[str]:
    data = output.get("data", {})
    if "image/png" in data:
        picture = base64.b64encode(base64.b64decode("".join(data["image/png"]))).decode()
        return [f"![A plot that the cell above draws](data:image/png;base64,{picture})"]
    text = "".join(output.get("text", data.get("text/plain", "")))
    return [f"```text\n{text.rstrip()}\n```"] if text.strip() else []
