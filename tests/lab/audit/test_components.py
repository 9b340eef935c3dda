"""Connected components of the mask graph, against a plain search."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sparsesecagg.patterns import Slices
from sparsesecagg.lab.audit.components import Nodes, component_sizes, label_components, open_components


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


def test_a_long_path_is_one_component() -> None:
    order = np.random.default_rng(1).permutation(5000)
    assert not label_components(5000, (order[:-1], order[1:])).any()


def test_nodes_are_numbered_user_by_user() -> None:
    nodes = Nodes.of({2: np.array([0, 3]), 5: np.arange(4)}, Slices(dim=10, count=4, served=1))
    assert nodes.user.tolist() == [2, 2, 5, 5, 5, 5]
    assert nodes.slice_number.tolist() == [0, 3, 0, 1, 2, 3]
    assert nodes.find(2, np.array([3])).tolist() == [1]
    assert nodes.find(5, np.array([1, 3])).tolist() == [3, 5]
    assert nodes.user[nodes.all_of(5)].tolist() == [5] * 4


def test_padding_counts_as_no_value() -> None:
    nodes = Nodes.of({0: np.arange(4)}, Slices(dim=10, count=4, served=1))
    assert nodes.coordinates.tolist() == [3, 3, 3, 1]


def test_a_sum_is_open_only_if_everybody_in_it_is() -> None:
    """Two triangles; one of the second is hidden and did not upload. Six is known through and through."""
    peers = {0: [1, 2], 1: [0, 2], 2: [0, 1], 3: [4, 5], 4: [3, 5], 5: [3, 4], 6: []}
    sizes = open_components({0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 6}, peers.__getitem__)
    assert sizes == {0: 3, 1: 3, 2: 3, 6: 1}


def test_masks_with_known_users_hide_nothing() -> None:
    peers = {place: [other for other in range(4) if other != place] for place in range(4)}
    assert open_components({1}, {0, 1}, peers.__getitem__) == {0: 1, 1: 1}
    assert open_components({0, 1}, {0, 1}, peers.__getitem__) == {0: 2, 1: 2}
