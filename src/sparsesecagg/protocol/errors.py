"""The errors of a round, under the room's own name; they live above all rooms because every room raises them."""

from sparsesecagg.errors import *  # noqa: F403
