"""The decision guide says what the planner answers."""

from experiments.guide import run


def test_every_row_of_the_page_is_what_the_planner_answers_now() -> None:
    page = run.PAGE.read_text(encoding="utf-8")
    assert run.published(page) == page


def test_more_dropouts_or_colluders_never_promise_more_at_the_same_threshold() -> None:
    for clients in run.USERS:
        calm, hostile = (run.plan(clients, "malicious", 0.1, colluding) for colluding in (0.1, 0.2))
        if hostile.feasible and calm.threshold == hostile.threshold:
            assert (hostile.anonymity or 0) <= (calm.anonymity or 0)
