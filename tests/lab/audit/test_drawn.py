"""Reading `pairwise`: everything that lies bare is read, and nothing else; components against a plain search."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.audit.rounds import attacked, parameters, steps_of
from sparsesecagg.field import Word
from sparsesecagg.lab.audit.drawn import (
    LARGEST_CHANCE,
    DrawnValues,
    component_sizes,
    label_components,
    small_pairs,
)


def setting(**options):
    return parameters(14, 300, **{"pattern": "pairwise", "alpha": 0.3, **options})


def read_of(found):
    """Return nodes, findings, component sizes, and the values read by (user, coordinate)."""
    nodes = DrawnValues(found.known[0])
    claims = nodes.attack()
    secrets = {index: found.states[index].packages[1].for_upload().mask_secret for index in nodes.users}
    places = zip(nodes.user[claims.nodes].tolist(), nodes.coordinate[claims.nodes].tolist(), strict=True)
    values = dict(zip(places, claims.values.tolist(), strict=True))
    return nodes, claims, component_sizes(nodes.components(secrets)), values


@pytest.mark.parametrize(("colluders", "dropped"), [((), (1, 5, 7)), ((0, 3, 9), (1, 5, 7)), ((0, 3, 9), ())])
def test_every_value_without_honest_partner_is_read_exactly(colluders, dropped) -> None:
    nodes, _, sizes, values = read_of(attacked(setting(), colluders=colluders, dropped=dropped))
    steps = steps_of(0, 300)
    assert all(value == steps(user)[coordinate] for (user, coordinate), value in values.items())
    bare = sizes == 1
    assert set(values) == set(zip(nodes.user[bare].tolist(), nodes.coordinate[bare].tolist(), strict=True))
    assert len(values) > 50


def test_nothing_single_is_read_while_everybody_stays_and_is_honest() -> None:
    _, claims, sizes, values = read_of(attacked(setting()))
    assert not values
    assert 1 not in sizes
    assert claims.wrong_values == 0  # Without any known mask no value was a candidate.


def test_two_users_who_share_a_mask_with_nobody_else_are_found_by_their_small_sum() -> None:
    tally = attacked(setting(alpha=0.2)).tally()
    assert tally.pairs.correct == tally.pairs.count == tally.by_size[2] // 2
    assert tally.by_size[2] > tally.values / 2


def test_colluders_make_the_attacker_see_more() -> None:
    alone = read_of(attacked(setting(), dropped=[1, 5]))[3]
    helped = read_of(attacked(setting(), colluders=[0, 3], dropped=[1, 5]))[3]
    assert {place for place in alone if place[0] not in (0, 3)} < set(helped)


def test_short_words_leave_only_what_is_certain() -> None:
    """Reading by size would err too often; a lone sender of a coordinate is read in words of any length."""
    found = attacked(setting(alpha=0.2, modulus_bits=16), colluders=[0, 3, 9], dropped=[1, 5, 7])
    nodes, claims, sizes, values = read_of(found)
    alone = nodes.senders[nodes.coordinate] == 1
    assert set(values) == set(zip(nodes.user[alone].tolist(), nodes.coordinate[alone].tolist(), strict=True))
    assert 0 < len(values) < np.count_nonzero(sizes == 1)
    assert claims.wrong_values == 0


def test_the_bound_on_wrong_readings_counts_every_test() -> None:
    nodes, claims, _, _ = read_of(attacked(setting(), dropped=[1, 5, 7]))
    assert 0 < claims.wrong_values < LARGEST_CHANCE * len(nodes)


def test_a_value_that_fits_two_partners_is_claimed_for_neither() -> None:
    values = np.array([10**6, -(10**6) + 3, -(10**6) - 2, 10**7, -(10**7) + 1])
    pairs, sums, tried = small_pairs(np.arange(5), np.zeros(5, np.int64), values, 10, Word.of(32))
    assert pairs.tolist() == [[3, 4]]
    assert sums.tolist() == [1]
    assert tried == 10


def test_only_values_of_one_coordinate_are_paired() -> None:
    values = np.array([10**6, -(10**6), 10**7, -(10**7)])
    pairs, _, tried = small_pairs(np.arange(4), np.array([0, 1, 2, 2]), values, 10, Word.of(32))
    assert pairs.tolist() == [[2, 3]]
    assert tried == 1


def reachable(start, edges):
    """Return the nodes that a walk along the edges reaches."""
    found, ahead = {start}, [start]
    while ahead:
        node = ahead.pop()
        for one, other in edges:
            for here, there in ((one, other), (other, one)):
                if here == node and there not in found:
                    found.add(there)
                    ahead.append(there)
    return found


@st.composite
def graphs(draw):
    nodes = draw(st.integers(1, 25))
    ends = st.integers(0, nodes - 1)
    return nodes, draw(st.lists(st.tuples(ends, ends), max_size=40))


@given(graphs())
def test_a_label_is_the_smallest_node_that_can_be_reached(graph) -> None:
    nodes, edges = graph
    ends = np.array(edges, np.int64).reshape(-1, 2)
    labels = label_components(nodes, (ends[:, 0], ends[:, 1]))
    components = [reachable(node, edges) for node in range(nodes)]
    assert labels.tolist() == [min(component) for component in components]
    assert component_sizes(labels).tolist() == [len(component) for component in components]
