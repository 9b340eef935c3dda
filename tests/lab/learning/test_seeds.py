"""Every draw of a run is named, so it does not depend on what was drawn before."""

from hypothesis import given
from hypothesis import strategies as st

from sparsesecagg.lab.learning.seeds import Purpose, generator, integer_seed

names = st.tuples(st.integers(0, 2**40), st.sampled_from(Purpose), st.integers(0, 1000), st.integers(0, 1000))


@given(names)
def test_a_name_always_gives_the_same_draws(name) -> None:
    """Same seed, purpose, round and user: same numbers."""
    assert generator(*name).random(4).tolist() == generator(*name).random(4).tolist()
    assert integer_seed(*name) == integer_seed(*name) < 2**63


@given(names, names)
def test_different_names_give_different_draws(one, other) -> None:
    """Rounds, users and purposes do not share a stream."""
    if one != other:
        assert integer_seed(*one) != integer_seed(*other)
