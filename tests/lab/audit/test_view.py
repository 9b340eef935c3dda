"""What the attacker restores from messages and colluders' draws, and what it can't."""

import pytest

from lab.audit.rounds import attacked, attacked_run, committee_of, next_round, parameters, steps_of
from sparsesecagg.crypto.keys import public_key
from sparsesecagg.simulate import InProcessRun, Transcript
from sparsesecagg.simulate.simulation import entropy_of_run, make_identities, seeded_entropy
from sparsesecagg.lab.audit.audit import STEPS
from sparsesecagg.lab.audit.colluder import Colluder
from sparsesecagg.lab.audit.pooling import Kind
from sparsesecagg.lab.audit.view import RunView
from sparsesecagg.protocol import Policy
from sparsesecagg.protocol.order import mask_key_of
from sparsesecagg.protocol.package import mask_private


def seeds_of(view):
    """Return the users whose private seeds are known."""
    return {pod.user(place) for pod in view.pods for place in pod.private_seeds}


def keys_of(view):
    """Return the users whose mask keys are known."""
    return {pod.user(place) for pod in view.pods for place in pod.agreements}


def test_unmask_gives_the_attacker_survivors_seeds_and_dropped_users_keys() -> None:
    view = attacked(parameters(clients=8, dim=30, pattern="pairwise", alpha=0.5), dropped=[2, 6]).view
    assert view.survivors == [0, 1, 3, 4, 5, 7]
    assert seeds_of(view) == set(view.survivors)
    assert keys_of(view) == {2, 6}


def test_colluders_bring_their_mask_keys_and_are_no_aim() -> None:
    view = attacked(parameters(clients=8, dim=30, pattern="full"), colluders=[1, 4], dropped=[0]).view
    assert set(view.place_of) == {2, 3, 5, 6, 7}
    assert keys_of(view) == {0, 1, 4}


def test_what_was_restored_are_the_real_secrets() -> None:
    (pod,) = attacked(parameters(clients=9, dim=10, pattern="full", threshold=5), colluders=range(5)).view.pods
    assert set(pod.agreements) == set(range(9))
    for place in range(9):
        for peer in range(place):
            # Agreeing from either side gives the same only if both private keys are right.
            one = pod.agreements[place].with_peer(mask_key_of(pod.packages[peer].head))
            assert one == pod.agreements[peer].with_peer(mask_key_of(pod.packages[place].head))


def test_a_threshold_of_colluders_opens_every_key_and_one_fewer_none() -> None:
    params = parameters(clients=9, dim=10, pattern="full", threshold=5)
    assert keys_of(attacked(params, colluders=range(4)).view) == set(range(4))
    assert keys_of(attacked(params, colluders=range(5)).view) == set(range(9))


def test_colluders_who_drop_out_still_help_since_the_server_has_what_was_dealt_to_them() -> None:
    params = parameters(clients=9, dim=10, pattern="full", threshold=5)
    assert keys_of(attacked(params, colluders=range(5), dropped=[0]).view) == set(range(9))


def test_a_threshold_of_colluders_reads_what_the_server_could_not_open() -> None:
    """The committee is too thin to be opened, and everybody in it is read."""
    params = parameters(clients=12, dim=20, alpha=0.5, threshold=7, min_survivors=6)
    thin = committee_of(params)
    others = committee_of(params, 1)
    colluders = [*others, thin[0]]
    found = attacked(params, colluders=colluders, dropped=thin[4:])
    assert found.outcome is not None
    assert found.outcome.result.lost.keys() == {0}
    assert set(found.findings.user.tolist()) == set(thin[1:4])
    assert found.truth.score_values(found.findings).correct == len(found.findings.value)


def test_a_committee_that_is_not_opened_stays_closed_to_fewer_colluders() -> None:
    params = parameters(clients=12, dim=20, alpha=0.5, threshold=7, min_survivors=6)
    thin = committee_of(params)
    found = attacked(params, colluders=thin[:3], dropped=thin[5:])
    assert found.view.closed_values == 2 * 10
    assert not set(found.view.place_of) & set(thin)
    assert seeds_of(found.view) == set(committee_of(params, 1))


def test_later_rounds_are_seen_as_well_with_missed_rounds_between() -> None:
    """A user that misses two rounds has no package in the third; one that misses one is a member of the next."""
    params = parameters(clients=12, dim=20, alpha=0.5)
    run = attacked_run(params, colluders=[4])
    always, once = [user for user in range(12) if user != 4][:2]
    missing = [[always, once], [always], [], []]
    seen = [next_round(run, dropped=dropped, seed=number) for number, dropped in enumerate(missing)]
    assert all(found.outcome is not None and found.outcome.exact for found in seen)
    members = [{pod.user(place) for pod in found.view.pods for place in pod.members} for found in seen]
    everybody = set(range(12))
    assert members == [everybody, everybody, everybody - {always}, everybody]
    for found, dropped in zip(seen, missing, strict=True):
        assert keys_of(found.view) == {4, *dropped}
    assert [seeds_of(found.view) for found in seen] == [
        everybody - {4, always, once},
        everybody - {4, always},
        everybody - {4, always},
        everybody - {4},
    ]


def test_the_view_needs_the_transcript_and_the_colluders_draws_only() -> None:
    params = parameters(clients=6, dim=12, alpha=0.5)
    drawn, transcript = [], Transcript()

    def recording(user):
        source = entropy_of_run(0)(user)

        def draw(size):
            value = source(size)
            if user == 3:
                drawn.append(value)
            return value

        return draw

    known = attacked(params, colluders=[3])
    policy = Policy(min_anonymity=1)
    run = InProcessRun(params, policy=policy, entropy_of=recording, observer=transcript)
    run.round(lambda user: steps_of(0, 12)(user) / STEPS)
    view = RunView(run.params, {3: drawn})
    view.take(transcript.sent, transcript.received)
    seen = view.round(1)
    assert keys_of(seen) == keys_of(known.view) == {3}
    assert seeds_of(seen) == seeds_of(known.view)


def test_several_pods_are_seen_apart() -> None:
    params = parameters(clients=24, dim=24, alpha=0.25, pod_size=12)
    view = attacked(params, dropped=[0, 1]).view
    assert len(view.pods) == 2
    assert keys_of(view) == {0, 1}
    assert seeds_of(view) == set(range(2, 24))


def test_with_a_roster_colluders_bring_their_identities() -> None:
    identities = make_identities(9, "test", seeded_entropy(1))
    params = parameters(clients=9, dim=12, alpha=1.0, colluders=2, roster_digest=identities[0].roster.digest)
    run = attacked_run(params, colluders=[2, 5], identities=identities)
    found = next_round(run, dropped=[7])
    assert found.outcome is not None
    assert found.outcome.exact
    assert keys_of(found.view) == {2, 5, 7}
    assert len(found.view.pods[0].pool.of(Kind.MASK_SECRET, 1)) == 2, (
        "both colluders could open what user 1 dealt to them"
    )


def test_a_key_that_a_user_did_not_draw_is_not_found() -> None:
    run = attacked_run(parameters(clients=5, dim=4, pattern="full"), colluders=[2])
    (pod,) = next_round(run).view.pods
    package = pod.packages[2]
    colluder = pod.colluders[2]
    secret = colluder.mask_secret(package)
    assert public_key(mask_private(pod.epoch, 1, 2, secret)) == mask_key_of(package.head)
    with pytest.raises(ValueError, match="none of the user's draws"):
        colluder.mask_secret(pod.packages[3])


def test_secrets_of_earlier_rounds_are_gone() -> None:
    run = attacked_run(parameters(clients=5, dim=4, pattern="full"), colluders=[2])
    first = next_round(run).view.pods[0]
    second = next_round(run).view.pods[0]
    assert isinstance(second.colluders[2], Colluder)
    with pytest.raises(ValueError, match="in order"):
        second.colluders[2].open_pair(3, 1, first.packages[3])
