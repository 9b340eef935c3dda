"""No text becomes markup, whatever it holds."""

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from sparsesecagg.lab.report.markup import element, joined, plot_text


class Seen(HTMLParser):
    """Collects what a browser would see."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the element and its attributes."""
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        """Note the text."""
        self.text += data


# HTML cannot carry a carriage return or a NUL as such; everything else it can.
TEXT = st.text(st.characters(exclude_characters="\r\0", exclude_categories=["Cs"]))


@given(TEXT)
def test_text_is_seen_as_it_was_given(text: str) -> None:
    """The parser finds one element and exactly the text."""
    seen = Seen(element("p", text))
    assert seen.tags == ["p"]
    assert seen.text == text


@given(TEXT)
def test_attributes_are_seen_as_they_were_given(text: str) -> None:
    """No quote ends an attribute early."""
    assert Seen(element("div", aria_label=text)).attributes == [("aria-label", text)]


def test_elements_nest_without_being_escaped_twice() -> None:
    """Only plain strings are escaped."""
    assert element("p", element("b", "a<b"), " & c", None) == "<p><b>a&lt;b</b> &amp; c</p>"
    assert joined("<", element("meta")) == "&lt;<meta>"


def test_attributes_that_are_off_are_left_out() -> None:
    """False and None mean no attribute, True one without a value."""
    assert (
        element("button", hidden=True, disabled=False, class_=None, data_run="0")
        == '<button hidden data-run="0"></button>'
    )


def test_a_plot_shows_markup_as_text() -> None:
    """Plotly would make `<b>` bold and `<a>` a link."""
    assert plot_text('<a href="x">&amp;') == '&lt;a href="x"&gt;&amp;amp;'
