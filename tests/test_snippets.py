"""Every snippet of README and docs runs, or its page says why not."""

from __future__ import annotations

import importlib.util
import re
import runpy
import tomllib
from pathlib import Path

import pytest

from cli.commands import run
from snippets import PAGES, ROOT, Snippet, snippets_of

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
WITH_PYTHON = [page for page in PAGES if any(each.kind == "python" for each in snippets_of(page))]
COMMANDS = [each for page in PAGES for each in snippets_of(page) if each.kind == "sh" and not each.reason]


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPARSESECAGG_LEDGER", str(tmp_path / "ledger"))
    names: dict[str, object] = {"__name__": "snippet"}
    for snippet in snippets_of(page):
        if snippet.kind == "python" and not snippet.reason:
            # Errors then name the page and its line.
            lines = "\n" * (snippet.line - 1) + snippet.code
            exec(compile(snippet.setup, f"set-up of {snippet.name}", "exec"), names)  # noqa: S102
            exec(compile(lines, page, "exec"), names)  # noqa: S102  # The point: it is what a reader would run.


@pytest.mark.parametrize("snippet", COMMANDS, ids=lambda snippet: snippet.name)
def test_the_commands_of_a_page_run(
    snippet: Snippet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet.setup, f"set-up of {snippet.name}", "exec"), {})  # noqa: S102
    assert snippet.commands()
    for program, *words in snippet.commands():
        match Path(program).name:
            case "sparsesecagg":
                code, _, err = run(capsys, *words, *snippet.options)
                assert code == 0, err
                # A newcomer who reads a warning about the tutorial's own command thinks that it was mistyped.
                assert snippet.page != "docs/tutorial.md" or "note:" not in err
            case "make":
                assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
            case "pip":
                require_known_extras(words)
            case "python":
                run_module([*words, *snippet.options], monkeypatch)
            case _:
                raise AssertionError(f"{snippet.name}: say with a mark why {program} is not run (tests/snippets.py)")


def require_known_extras(words: list[str]) -> None:
    """Installing is tested in tests/test_install.py; here, that what is named exists."""
    for word in words:
        for extra in re.findall(r"\[([a-z,]+)\]", word):
            assert set(extra.split(",")) <= set(EXTRAS)


def run_module(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run `python -m module …` in this process, or only look for a module that measures something."""
    assert words[0] == "-m", "other ways to call Python are not run"
    name, arguments = words[1], words[2:]
    assert importlib.util.find_spec(name)
    if arguments:
        monkeypatch.setattr("sys.argv", [name, *arguments])
        with pytest.raises(SystemExit) as end:
            runpy.run_module(name, run_name="__main__")
        assert not end.value.code


def test_what_is_not_run_has_a_reason() -> None:
    reasons = {each.name: each.reason for page in PAGES for each in snippets_of(page) if each.reason}
    assert all(len(reason) > 10 for reason in reasons.values())


def test_a_mark_with_a_mistake_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "page.md").write_text("<!-- snippet: no -->\n```python\nx = 1\n```\n", encoding="utf-8")
    monkeypatch.setattr("snippets.ROOT", tmp_path)
    with pytest.raises(ValueError, match=r"page\.md:1"):
        snippets_of("page.md")


def test_broken_snippets_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machinery itself: what it finds, and what it leaves out."""
    text = "text\n\n    sparsesecagg plan --clients 3  # words\n    more\n\n"
    text += "<!-- snippet: with --x 1 -->\n    make test\n\n"
    text += "<!-- snippet: not run, it is an example of that -->\n```python\ny\n```\n```text\nz\n```\n"
    (tmp_path / "page.md").write_text(text, encoding="utf-8")
    monkeypatch.setattr("snippets.ROOT", tmp_path)
    plan, made, code = snippets_of("page.md")
    assert plan.commands() == [["sparsesecagg", "plan", "--clients", "3"]]
    assert (made.commands(), made.options) == ([["make", "test"]], ["--x", "1"])
    assert (code.kind, code.code, code.reason, code.line) == ("python", "y", "it is an example of that", 11)
