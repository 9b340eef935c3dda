"""What the attacker restores from messages and colluders' draws, and what it can't."""

import pytest

from privacy.rounds import attacked, parameters
from sparsesecagg.crypto.keys import public_key
from sparsesecagg.privacy.view import View, private_key_of
from sparsesecagg.protocol import Transcript, run_round
from sparsesecagg.protocol.simulation import entropy_of_round


def test_unmask_gives_the_attacker_survivors_seeds_and_dropped_users_keys():
    view = attacked(parameters(clients=8, dim=30, pattern="pairwise", alpha=0.5), dropped=[2, 6]).view
    assert view.survivors == [0, 1, 3, 4, 5, 7]
    assert set(view.private_seeds) == set(view.survivors)
    assert set(view.mask_keys) == {2, 6}
    for user, key in view.mask_keys.items():
        assert public_key(key) == view.directory.mask_key(user)


def test_colluders_bring_their_mask_keys():
    view = attacked(parameters(clients=8, dim=30, pattern="full"), colluders=[1, 4], dropped=[0]).view
    assert view.honest == [2, 3, 5, 6, 7]
    assert set(view.mask_keys) == {0, 1, 4}
    assert public_key(view.mask_keys[4]) == view.directory.mask_key(4)


def test_a_threshold_of_colluders_opens_every_key_and_one_fewer_none():
    params = parameters(clients=9, dim=10, pattern="full", threshold=5)
    assert set(attacked(params, colluders=range(4)).view.mask_keys) == set(range(4))
    view = attacked(params, colluders=range(5)).view
    assert set(view.mask_keys) == set(range(9))
    assert all(public_key(key) == view.directory.mask_key(user) for user, key in view.mask_keys.items())


def test_colluders_who_drop_out_before_they_are_given_shares_do_not_help_to_open_keys():
    params = parameters(clients=9, dim=10, pattern="full", threshold=5)
    assert set(attacked(params, colluders=range(5), dropped=[0]).view.mask_keys) == set(range(5))


def test_the_view_needs_the_transcript_and_the_colluders_draws_only():
    params = parameters(clients=6, dim=12, pattern="committee", alpha=0.5)
    drawn, transcript = [], Transcript()

    def recording(user):
        source = entropy_of_round(0, 1)(user)

        def draw(size):
            value = source(size)
            if user == 3:
                drawn.append(value)
            return value

        return draw

    known = attacked(params, colluders=[3])
    run_round(params, known.truth.update_of, entropy_of=recording, transcript=transcript)
    view = View(transcript, {3: drawn})
    assert view.mask_keys == known.view.mask_keys
    assert view.private_seeds == known.view.private_seeds


def test_a_key_is_found_among_draws_of_any_order():
    view = attacked(parameters(clients=5, dim=4, pattern="full"), colluders=[2]).view
    public = view.directory.mask_key(2)
    assert public_key(private_key_of(view.colluders[2][::-1], public)) == public
    with pytest.raises(ValueError, match="none of the user's draws"):
        private_key_of([b"short", bytes(range(32))], public)
