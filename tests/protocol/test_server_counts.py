"""What the server counts: sizes both ways, dropouts, and whom it still waits for."""

from __future__ import annotations

from protocol.rounds import Round, identities, small
from sparsesecagg.protocol import STAGES, Stage
from sparsesecagg.protocol.stages import STAGES_WITH_ROSTER


def counted(game: Round) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Run a round; return the sizes of all messages to and from the server."""
    sent: dict[str, list[int]] = {}
    received: dict[str, list[int]] = {}
    while game.server.stage is not Stage.DONE:
        stage = game.server.stage.name
        assert game.server.waiting_for == set(game.inbox)
        received[stage] = [len(data) for data in game.inbox.values()]
        answers = {user: game.answer(user) for user in game.inbox}
        sent[stage] = [len(answer) for answer in answers.values()]
        for user, answer in answers.items():
            game.server.receive(answer)
            assert user not in game.server.waiting_for
        game.inbox = game.server.close_stage()
    return sent, received


def test_the_sizes_of_all_messages_are_counted() -> None:
    people = identities(5)
    plain, signed = small(), small(roster_digest=people[0].roster.digest)
    for game, stages in ((Round(plain), STAGES), (Round(signed, identities=people), STAGES_WITH_ROSTER)):
        sent, received = counted(game)
        received["ADVERTISE_KEYS"] = [len(game.params.encode())]
        result = game.server.result
        assert result is not None
        assert game.inbox == {}
        assert list(result.sent_bytes) == list(result.received_bytes) == [stage.name for stage in stages]
        assert {stage: list(sizes) for stage, sizes in result.sent_bytes.items()} == sent
        assert {stage: list(sizes) for stage, sizes in result.received_bytes.items()} == received
        assert result.dropped == {stage.name: 0 for stage in stages}
        assert result.false_shares == ()
