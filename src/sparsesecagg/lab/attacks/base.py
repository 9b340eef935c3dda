"""What an attack is: a lie against the real code, played as it is and with the one check taken out that stops it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Literal

from sparsesecagg.errors import SparseSecAggError

Mode = Literal["plain", "authenticated"]
MODES: tuple[Mode, ...] = ("plain", "authenticated")


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
class Loot:
    """What comes out of an attack while it is played; kept whatever ends it."""

    values: int = 0
    """Values that the attacker should not have and that are right; for an attack on correctness, what is made wrong."""
    refusals: list[str] = field(default_factory=list)
    """The types of the errors that stood in its way."""

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note a refusal, which ends what is done in here and nothing else."""
        try:
            yield
        except SparseSecAggError as refusal:
            self.refusals.append(type(refusal).__name__)


Play = Callable[[Setting, Loot], None]
Control = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Attack:
    """One lie."""

    name: str
    lie: str
    """One sentence."""
    promise: str
    play: Play
    without_check: Control
    """Takes out the one check that stops it, while the control runs."""
    modes: tuple[Mode, ...] = MODES
    """In which it can be played."""
    promised: tuple[Mode, ...] = MODES
    """Modes that promise that it fails."""


ATTACKS: dict[str, Attack] = {}
"""All of them, by name."""


def attack(lie: str, promise: str, without_check: Control = nullcontext, **options: Any) -> Callable[[Play], Play]:
    """Enter a function into the suite under its own name. Without a check to take out, its control is itself."""

    def enter(play: Play) -> Play:
        name = play.__name__.replace("_", "-")
        ATTACKS[name] = Attack(name, lie, promise, play, without_check, **options)
        return play

    return enter


@dataclass(frozen=True)
class AttackOutcome:
    """An attack that was played, with its control."""

    attack: Attack
    mode: Mode
    loot: Loot
    control: Loot

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
    loot = _play(attack, setting)
    with attack.without_check():
        control = _play(attack, setting)
    return AttackOutcome(attack, setting.mode, loot, control)


def _play(attack: Attack, setting: Setting) -> Loot:
    """Return what was read, before an error or without one."""
    loot = Loot()
    with loot.noting():
        attack.play(setting, loot)
    return loot


def flower_installed() -> bool:
    """Tell whether attacks on nodes of Flower can be played."""
    try:
        return find_spec("flwr") is not None
    except ImportError:
        return False


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Put something else in the place of a function while a control runs."""
    kept = owner.__dict__[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, kept)


def without(owner: Any, name: str, value: Any) -> Control:
    """Return a control that puts something else in the place of one check."""
    return lambda: replaced(owner, name, value)
