"""HTML that cannot be injected into: text is escaped by construction.

Run folders come from other people's machines, and an option or a failure reason may contain anything.
Everything here takes plain strings and escapes them; only what `element` built itself goes through unchanged.
"""

from __future__ import annotations

import html

VOID = frozenset({"meta"})


class Html(str):
    """Markup that is safe already, made by `element` and `joined`; `trusted` vouches for our own files."""

    __slots__ = ()


def trusted(markup: str) -> Html:
    """Vouch for markup of our own, or of Plotly's writer. Never pass anything read from a run folder."""
    return Html(markup)


def element(tag: str, *children: str | None, **attributes: str | bool | None) -> Html:
    """Build one element. Strings are escaped, Html is kept, None is left out.

    Attributes are spelt as Python allows: `class_` becomes class, `aria_label` becomes aria-label.
    """
    written = "".join(_attribute(name, value) for name, value in attributes.items() if value not in (None, False))
    if tag in VOID:
        return Html(f"<{tag}{written}>")
    return Html(f"<{tag}{written}>{joined(*children)}</{tag}>")


def joined(*children: str | None) -> Html:
    """Put pieces one after the other, escaping plain strings."""
    return Html(
        "".join(child if isinstance(child, Html) else html.escape(child) for child in children if child is not None)
    )


def plot_text(text: str) -> str:
    """Escape a string for a plot: Plotly reads a small HTML of its own in names, labels and hover texts."""
    return html.escape(text, quote=False)


def _attribute(name: str, value: str | bool | None) -> str:
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(str(value))}"'
