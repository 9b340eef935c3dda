"""What an attack is: a lie against the real code, played as it is and with the one check taken out that stops it."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

from sparsesecagg.errors import SparseSecAggError

Mode = Literal["plain", "authenticated"]
MODES: tuple[Mode, ...] = ("plain", "authenticated")
_MEMORY = Path("/dev/shm")  # noqa: S108


@dataclass(frozen=True)
class Setting:
    """Whom an attack is played against."""

    clients: int = 40
    alpha: float = 1 / 6
    mode: Mode = "authenticated"
    seed: int = 0

    @property
    def authenticated(self) -> bool:
        """Whether the users have a roster."""
        return self.mode == "authenticated"


@dataclass
class Play:
    """An attack while it is played: against whom, and what comes out of it, kept whatever ends it."""

    setting: Setting
    values: int = 0
    """Values that the attacker should not have and that are right; for an attack on correctness, what is made wrong."""
    refusals: list[str] = field(default_factory=list)  # The types of the errors that stood in its way.
    cleanup: ExitStack = field(default_factory=ExitStack)  # What is done afterwards.

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note a refusal, which ends what is done in here and nothing else."""
        try:
            yield
        except SparseSecAggError as refusal:
            self.refusals.append(type(refusal).__name__)

    def folder(self) -> Path:
        """Return a folder for the time of the attack; in memory where there is one, because ledgers wait for disks."""
        made = tempfile.TemporaryDirectory(prefix="attack-", dir=_MEMORY if _MEMORY.is_dir() else None)
        return Path(self.cleanup.enter_context(made))


Control = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Attack:
    """One lie."""

    name: str
    lie: str  # One sentence.
    promise: str
    play: Callable[[Play], None]
    without_check: Control  # Takes out the one check that stops it, while the control runs.
    modes: tuple[Mode, ...] = MODES  # In which it can be played.
    promised: tuple[Mode, ...] = MODES  # Modes that promise that it fails.


ATTACKS: dict[str, Attack] = {}  # All of them, by name.


def attack(
    without_check: Control = nullcontext,
    stage: Callable[..., Any] = lambda play: play,
    *,
    modes: tuple[Mode, ...] = MODES,
    promised: tuple[Mode, ...] | None = None,
    **options: Any,
) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Enter a function into the suite under its own name; its docstring is the lie, and then what is promised.

    It is played on a stage, such as a `World` with these options. Without a check to take out, its control is itself.
    """

    def enter(function: Callable[[Any], None]) -> Callable[[Any], None]:
        name = function.__name__.replace("_", "-")
        lie, promise = (" ".join(part.split()) for part in (inspect.getdoc(function) or "").split("\n\n")[:2])
        kept = modes if promised is None else promised
        ATTACKS[name] = Attack(
            name, lie, promise, lambda play: function(stage(play, **options)), without_check, modes, kept
        )
        return function

    return enter


@dataclass(frozen=True)
class AttackOutcome:
    """An attack that was played, with its control."""

    attack: Attack
    loot: Play
    control: Play

    @property
    def mode(self) -> Mode:
        """In which it was played."""
        return self.loot.setting.mode

    @property
    def promised(self) -> bool:
        """Whether this mode promises that the attack fails."""
        return self.mode in self.attack.promised

    @property
    def broken(self) -> bool:
        """A promise that did not hold, or a control that shows nothing."""
        return (self.promised and self.loot.values > 0) or self.control.values == 0

    def as_json(self) -> dict[str, Any]:
        """Return the row of the command's JSON."""
        return {
            "name": self.attack.name,
            "mode": self.mode,
            "lie": self.attack.lie,
            "promise": self.attack.promise,
            "promised": self.promised,
            "values_read": self.loot.values,
            "refused_by": self.loot.refusals[0] if self.loot.refusals else None,
            "control_values_read": self.control.values,
        }


def run(attack: Attack, setting: Setting) -> AttackOutcome:
    """Play an attack as it is, and its control."""
    loot, control = Play(setting), Play(setting)
    for play, check in ((loot, nullcontext()), (control, attack.without_check())):
        with check, play.cleanup, play.noting():
            attack.play(play)
    return AttackOutcome(attack, loot, control)


def flower_installed() -> bool:
    """Tell whether attacks on nodes of Flower can be played."""
    try:
        return find_spec("flwr") is not None
    except ImportError:
        return False


def without(owner: Any, **instead: Any) -> Control:
    """Return a control that puts something else in the place of a check."""
    return lambda: patch.multiple(owner, **instead)
