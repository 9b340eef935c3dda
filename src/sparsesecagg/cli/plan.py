"""`sparsesecagg plan`: settings of a run from what it has to promise, and the lines that use them."""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from rich.table import Table

from sparsesecagg.cli.shared import JsonOption, bytes_text, option, out, print_json, say, takes
from sparsesecagg.downlink.gain import DEFAULT_ALPHA
from sparsesecagg.errors import InvalidInput, plural, require
from sparsesecagg.patterns.groups import SMALLEST_GROUP
from sparsesecagg.planning.message_sizes import default_levels
from sparsesecagg.planning.noise import FAILURE_LOG2, MEANING, USUAL_DELTA, DifferentialPrivacy
from sparsesecagg.planning.planner import Goal, Plan, plan_round
from sparsesecagg.protocol import RoundOptions
from sparsesecagg.protocol.parameters import LARGEST_CLIP


@dataclass(frozen=True)
class PlanOptions:
    """What to plan for."""

    clients: int
    dim: int
    dropout: float
    colluding: float = option(MISSING, "Fraction of users that help the server (γ), in [0, 0.5).")
    min_anonymity: int = option(MISSING, "Minimum number of honest users in every sum (T), from 1 to N.")
    failure_log2: float = option(FAILURE_LOG2, "Allowed probability per run that it fails, as a power of two.")
    server: str = option(
        "malicious", "malicious: it may say anything to anybody. semi-honest: it follows the protocol."
    )
    alpha: float = option(
        DEFAULT_ALPHA, "Fraction of the model that each user sends (α), in (0, 1]; it costs no anonymity."
    )
    group_size: int | None = option(None, "Users of a group, at most.", "as the anonymity needs")
    malicious: int = option(0, "Malicious users that centred clipping over groups must withstand: fewer than half.")
    epsilon: float | None = option(None, "Differential privacy over all rounds (ε).", "no noise")
    delta: float | None = option(None, "With --epsilon: δ, below 1/N.", f"{USUAL_DELTA:g}")
    rounds: int | None = option(None, "With --epsilon: rounds of the run.")
    clip_norm: float | None = option(None, "With --epsilon: largest 2-norm of an update.", "1")

    def goal(self) -> Goal:
        """Return what the planner is asked."""
        same = {each.name: getattr(self, each.name) for each in fields(Goal) if each.name != "noise"}
        return Goal(**same | {"group_size": self._robust_size(), "noise": self._noise()})

    def _robust_size(self) -> int | None:
        """Return the size of groups of which the malicious users can spoil fewer than half."""
        if not self.malicious:
            return self.group_size
        require("group_size", self.group_size is None, "must not be given with --malicious, from which it follows")
        size, most = self.clients // (2 * self.malicious + 1), max(0, (self.clients // SMALLEST_GROUP - 1) // 2)
        if size < SMALLEST_GROUP:
            allowed = f"from 0 to {most}" if most else "0"
            raise InvalidInput("malicious", f"must be {allowed} with {self.clients} clients, got {self.malicious}")
        return size

    def _noise(self) -> DifferentialPrivacy | None:
        """Return what noise has to keep; None if nothing is asked for."""
        given = {name: getattr(self, name) for name in ("rounds", "delta", "clip_norm")}
        given = {name: value for name, value in given.items() if value is not None}
        if self.epsilon is None:
            for name in given:
                raise InvalidInput(name, "must be given together with --epsilon")
            return None
        if self.rounds is None:
            raise InvalidInput("rounds", "is required with --epsilon")
        clip = given.pop("clip_norm", 1.0)
        require("clip_norm", 0 < clip <= LARGEST_CLIP, f"must be above 0 and at most 1e30, got {clip:g}")
        return DifferentialPrivacy(self.epsilon, clip=clip, **given)


@takes(PlanOptions)
def plan(asked: PlanOptions, *, json: JsonOption = False) -> None:
    """Find groups and a threshold that keep an anonymity, or say why there are none and what would help.

    Probabilities are exact tails; nothing is sampled. "Not feasible" is an answer and exits with 0. In the JSON,
    abort_probability is the chance per round that a given group's sum is lost because fewer users than the threshold
    stay; with one group, the round then fails. Bytes are per round and user, without the model. With --epsilon users
    add noise: user level, zero-out neighbours, no amplification. A plan with too much noise to learn is not feasible.
    """
    answer, malicious = plan_round(asked.goal()), asked.malicious
    if malicious and answer.options is not None:
        stood = f"; malicious users: {answer.groups} groups that send the same slice withstand {malicious} of them"
        options = replace(answer.options, same_slices=True)
        answer = replace(answer, options=options, reason=answer.reason + stood)
    if json:
        print_json(as_json(answer))
        return
    if answer.options is not None:
        out.print(_table(answer, answer.options))
    out.print(f"{'Feasible' if answer.feasible else 'Not feasible'}. {answer.reason.capitalize()}.", highlight=False)
    if answer.options is not None:
        say("\nTo use it:")
        for line in lines_to_paste(answer, answer.options):
            say(f"  {line}")


def as_json(answer: Plan) -> dict[str, Any]:
    """Return the command's JSON object; figures are null if nothing is feasible, but those of too much noise."""
    figures = "upload_bytes all_bytes_sent all_bytes_received compression_vs_secagg privacy_failure_log2"
    noise = answer.noise
    return {
        "feasible": answer.feasible,
        "reason": answer.reason,
        "alpha": answer.options and answer.options.alpha,
        **{name: getattr(answer, name) for name in ("groups", "group_size", "threshold", "anonymity")},
        "modulus_bits": answer.options and answer.options.modulus_bits,
        **{name: getattr(answer, name) for name in (*figures.split(), "abort_probability")},
        "dp": noise
        and {
            "epsilon": noise.goal.epsilon,
            "delta": noise.goal.delta,
            "noise_multiplier": noise.multiplier,
            "honest_noise_users": noise.honest,
            "noise_std_vs_trusted_server": noise.std_vs_trusted_server,
            "noise_norm_in_clips": noise.norm_in_clips,
        },
    }


_MEASURED = 5, 100
"""Users of the smallest and the largest group in results/levels.json."""
ROSTER = ', roster="FILE"'


def lines_to_paste(answer: Plan, options: RoundOptions) -> list[str]:
    """Return the lines that use a plan: `simulate`, `train`, Flower, and the roster that a malicious server takes."""
    goal, noise = answer.goal, answer.goal.noise
    malicious = goal.server == "malicious"
    size = "" if options.group_size is None else f" --group-size {options.group_size}"
    common = (
        f"--clients {goal.clients} --alpha {options.alpha:g}{size} --threshold {options.threshold} "
        f"--dropout {goal.dropout:g}{' --authenticated' * malicious}"
    )
    bits, colluding = f"--modulus-bits {options.modulus_bits}", f"--colluding {goal.colluding:g}"
    trained, private = f"{bits} {colluding}", ""
    if noise is not None:  # Then `train` takes the word that its own model needs.
        figures = {"epsilon": noise.epsilon, "delta": noise.delta, "clip": noise.clip}
        trained = f"{colluding} --rounds {noise.rounds} " + " ".join(f"--dp-{n} {v:g}" for n, v in figures.items())
        given = ", ".join(f"{name}={value:g}" for name, value in figures.items())
        private = f", dp=DifferentialPrivacy({given}, rounds={noise.rounds})"
    told = {"clip_norm", "noise_multiplier"}
    combine, over = "", ""
    if options.same_slices:  # Groups are compared, and the strategy cuts them itself.
        told |= {"same_slices", "group_size"}
        combine, over = " --combine centred-clipping", f', over="clipped-groups", groups={answer.groups}'
    changed = ", ".join(
        f"{field.name}={getattr(options, field.name)!r}"
        for field in fields(options)
        if getattr(options, field.name) != field.default and field.name not in told
    )
    train = f"sparsesecagg train --aggregator sliced {common} {trained}{combine}"
    lines = [
        f"sparsesecagg simulate {common} {bits} --dim {goal.dim}",
        *([] if combine and private else [train]),  # `train` can't clip groups and add noise.
        f"SecAgg(FedAvg(), options=RoundOptions({changed}){private}{over}{ROSTER * malicious})",
    ]
    if malicious:
        remark = "    # without a roster a malicious server plays all other users itself"
        lines.append(f"sparsesecagg roster build --run NAME --roster FILE{size} {colluding} ENTRIES…{remark}")
    return lines


def _table(answer: Plan, options: RoundOptions) -> Table:
    goal, noise = answer.goal, answer.noise
    several, honest, colluders = (answer.groups or 1) > 1, answer.anonymity or 0, answer.colluders or 0
    failure = f"2^{math.ceil(10 * (answer.privacy_failure_log2 or 0)) / 10:g}"
    never = colluders >= min(goal.colluders, answer.group_size or 0)  # A group can't have more.
    smaller = answer.compression_vs_secagg or 1.0
    size = f"1/{smaller:.1f} of" if smaller >= 1 else f"{1 / smaller:.1f} times"
    rows = [
        ("anonymity", f"{answer.anonymity}", f"honest {plural(honest, 'user')} in every sum, {goal.server} server"),
        ("groups", f"{answer.groups}", f"of {answer.group_size} users at most" if several else "everybody"),
        ("threshold", f"{answer.threshold}", "users of a group that must stay for its sum to open"),
        ("alpha", f"{options.alpha:g}", "of the model is what each user sends in a round"),
        ("modulus bits", f"{options.modulus_bits}", _levels_text(answer)),
        ("upload", bytes_text(answer.upload_bytes or 0), f"{size} 32-bit SecAgg"),
        ("all sent", bytes_text(answer.all_bytes_sent or 0), "per user and round: upload, keys, shares, tags"),
        ("all received", bytes_text(answer.all_bytes_received or 0), "per user and round, without the model"),
        ("privacy fails", "never", f"with at most {goal.colluders} colluding {plural(goal.colluders, 'user')}")
        if never
        else (
            "privacy fails",
            failure,
            f"per run: more than {colluders} colluding {plural(colluders, 'user')} in a group",
        ),
        (
            "rounds lost",
            f"{answer.abort_probability:.2g}",
            f"of {'a group' if several else 'the run'}, revealing nothing",
        ),
    ]
    if noise is not None:
        rounds = "one round" if noise.goal.rounds == 1 else f"all {noise.goal.rounds} rounds"
        meaning = f"δ = {noise.goal.delta:g}, {rounds}: {MEANING}"
        rows += [
            ("epsilon", f"{noise.goal.epsilon:g}", meaning),
            (
                "noise",
                f"{noise.multiplier:g}",
                f"multiplier; shared by {noise.honest} honest {plural(noise.honest, 'user')}",
            ),
            ("", f"{noise.std_vs_trusted_server:.2f}", "times the standard deviation of a trusted server's noise"),
            ("", f"{noise.norm_in_clips:.2g}", "clips is the norm of a trusted server's noise in the mean"),
        ]
    table = Table(title=f"{goal.clients} users, {goal.dim:,} coordinates", title_justify="left", show_header=False)
    for row in rows:
        table.add_row(*row)
    return table


def _levels_text(answer: Plan) -> str:
    if answer.noise is not None:
        return "the shortest that hold sums with noise"
    size = answer.goal.clients // (answer.groups or 1)
    least, most = _MEASURED
    beside = f": within 0.4 points of 32 levels in groups of {least} to {most} users (digits, MNIST)"
    return f"{default_levels(size)} levels from 0 to the clip" + beside * (least <= size <= most)
