"""What a report says first."""

import statistics
from pathlib import Path

from lab.report.synthetic import write_run
from sparsesecagg.lab.report.headline import Headline, headline, in_short
from sparsesecagg.lab.report.measures import baseline, measure
from sparsesecagg.lab.report.records import Run, merged, read_run


def said(*runs: Run) -> Headline:
    """Return the headline of these runs."""
    return headline([measure(run) for run in runs], baseline(runs))


def run(folder: Path, aggregator: str, **more: object) -> Run:
    """Return a made-up run of 30 rounds."""
    return read_run(write_run(folder / aggregator, aggregator, **more))  # type: ignore[arg-type]


def plain_spaces(text: str) -> str:
    """Replace the spaces that keep a figure and its unit together."""
    return text.replace("\u00a0", " ").replace("\u202f", " ")


def test_a_comparison_says_accuracy_bytes_and_the_ratio_to_secagg(tmp_path: Path) -> None:
    """About the sliced, wherever it stands in the list; SecAgg's bytes are called measured."""
    secagg, sliced = run(tmp_path, "secagg"), run(tmp_path, "sliced")
    words = said(secagg, sliced)
    last = [100 * (r.rounds[-1].accuracy or 0) for r in (secagg, sliced)]
    assert plain_spaces(words.title) == (
        f"sliced reaches {last[1]:.1f} % accuracy; "
        "each user sends 317 kB in 30 rounds, per round 8.9 times less than SecAgg"
    )
    assert "20 times less than SecAgg (87.4 kB, measured)" in plain_spaces(words.sentences[0])
    assert words.sentences[1] == "One seed per run: a difference of a point or so in accuracy may be chance."


def test_a_single_run_says_that_secagg_was_computed(tmp_path: Path) -> None:
    """A ratio that rests on a formula is not passed off as measured."""
    words = said(run(tmp_path, "sliced"))
    assert "uploads 20 times less than SecAgg" in words.title
    assert "computed for 32-bit words, it was not run" in words.sentences[0]


def test_secagg_is_not_compared_with_itself(tmp_path: Path) -> None:
    """Its own headline has no ratio."""
    words = said(run(tmp_path, "secagg"))
    assert "less than" not in words.title
    assert "as much as" not in words.title


def test_failures_are_told(tmp_path: Path) -> None:
    """How many, and in which run."""
    words = said(run(tmp_path, "sliced", failed=(3, 4)))
    assert words.sentences[-1] == "Rounds that failed and left the model as it was: 2 of 30 in sliced."


def test_a_run_that_failed_altogether_claims_nothing(tmp_path: Path) -> None:
    """No accuracy, no bytes per round, no ratio."""
    words = said(run(tmp_path, "sliced", rounds=2, failed=(1, 2)))
    assert words.title == "sliced: all 2 rounds failed"
    assert words.sentences == ("Rounds that failed and left the model as it was: 2 of 2 in sliced.",)
    assert said(run(tmp_path / "1", "sliced", rounds=1, failed=(1,))).title == ("sliced: the only round failed")


def test_a_run_without_rounds_says_so(tmp_path: Path) -> None:
    """Instead of zeros that look like results."""
    empty = Run(name="sliced", config={"aggregator": "sliced", "dim": 10}, partition=None, rounds=())
    assert said(empty).title == "sliced: no round has finished yet"


def test_pairwise_comes_with_its_warning(tmp_path: Path) -> None:
    """Whenever it is among the runs, and only then."""
    pairwise, sliced = run(tmp_path, "pairwise"), run(tmp_path, "sliced")
    assert "not to protect anyone" in (said(sliced, pairwise).warning or "")
    assert said(sliced).warning is None


def test_the_warning_has_the_figure_of_the_run(tmp_path: Path) -> None:
    """What theory expects the server to read with these settings."""
    warning = said(run(tmp_path, "pairwise", expected_exposure=0.2797)).warning
    assert plain_spaces(warning or "").endswith("Here the server is expected to read 28 % of what users upload.")


def test_several_seeds_come_with_their_spread(tmp_path: Path) -> None:
    runs = [run(tmp_path / str(seed), "sliced", seed=seed) for seed in range(3)]
    accuracies = [each.rounds[-1].accuracy or 0 for each in runs]
    words = said(merged(runs), run(tmp_path, "secagg"))
    told = plain_spaces(words.sentences[1])
    mean, deviation = 100 * statistics.fmean(accuracies), 100 * statistics.stdev(accuracies)
    assert f"sliced {mean:.1f} ± {deviation:.1f} % (3 seeds), secagg" in told
    assert told.endswith("(1 seed).")


def test_a_comparison_ends_in_one_sentence(tmp_path: Path) -> None:
    """Bytes, accuracy and what the server sees, on whose condition; nothing to compare with, nothing said."""
    protected = {"expected_exposure": 0.0, "effective": {"anonymity": 40}}
    sliced, plain = run(tmp_path, "sliced", **protected), run(tmp_path, "plain")
    last = [100 * (each.rounds[-1].accuracy or 0) for each in (sliced, plain)]
    assert plain_spaces(in_short([plain, sliced]) or "") == (
        "With sliced each user sends 10.6 kB a round, 8.3 times less than with plain training (87.4 kB); the model "
        f"reaches {last[0]:.1f} %, with plain training {last[1]:.1f} %; and a server that follows the protocol sees "
        "only sums of 40 honest users or more, never one user's update."
    )
    assert in_short([sliced]) is None
    roster = run(tmp_path / "a", "sliced", **{**protected, "effective": {"anonymity": 9, "authenticated": True}})
    assert "even a malicious server sees only sums of 9 honest" in (in_short([roster, plain]) or "")


def test_one_run_is_compared_with_nothing(tmp_path: Path) -> None:
    assert not any("chance" in sentence for sentence in said(run(tmp_path, "sliced")).sentences)
