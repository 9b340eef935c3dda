"""What an attack is: a lie against the real code, run as it is and with the one check taken out that stops it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

from sparsesecagg.errors import ProtocolError, SparseSecAggError

Mode = Literal["plain", "authenticated"]


@dataclass(frozen=True)
class Setting:
    """Whom an attack is played against."""

    clients: int = 60
    alpha: float = 1 / 6
    mode: Mode = "authenticated"
    seed: int = 0

    @property
    def authenticated(self) -> bool:
        """Whether the users have a roster."""
        return self.mode == "authenticated"


@dataclass(frozen=True)
class Reading:
    """What came out of an attack."""

    values: int
    """Values that the attacker should not have and that are right; for an attack on correctness, values made wrong."""
    refused_by: str | None = None
    """The type of the error that stopped it."""


Play = Callable[[Setting], Reading]


@dataclass(frozen=True)
class Attack:
    """One lie. `promised` are the modes that promise that it fails; `modes` those in which it can be played."""

    name: str
    lie: str
    promise: str
    play: Play
    without_check: Callable[[], AbstractContextManager[Any]]
    """Takes out the one check that stops it, while the control runs."""
    modes: tuple[Mode, ...] = ("plain", "authenticated")
    promised: tuple[Mode, ...] = ("plain", "authenticated")
    extra: str = ""
    """The extra that must be installed for it."""

    @property
    def available(self) -> bool:
        """Whether it can be played here."""
        return self.extra != "flower" or find_spec("flwr") is not None


@dataclass(frozen=True)
class AttackOutcome:
    """An attack that was run, with its control."""

    attack: Attack
    mode: Mode
    reading: Reading
    control: Reading

    @property
    def promised(self) -> bool:
        """Whether this mode promises that the attack fails."""
        return self.mode in self.attack.promised

    @property
    def broken(self) -> bool:
        """A promise that did not hold, or a control that shows nothing."""
        return (self.promised and self.reading.values > 0) or self.control.values == 0

    def as_json(self) -> dict[str, Any]:
        """Return the row of the command's JSON."""
        return {
            "name": self.attack.name,
            "mode": self.mode,
            "lie": self.attack.lie,
            "promise": self.attack.promise,
            "promised": self.promised,
            "values_read": self.reading.values,
            "refused_by": self.reading.refused_by,
            "control_values_read": self.control.values,
        }


def run(attack: Attack, setting: Setting) -> AttackOutcome:
    """Play an attack as it is, and its control."""
    reading = _play(attack, setting)
    with attack.without_check():
        control = _play(attack, setting)
    return AttackOutcome(attack, setting.mode, reading, control)


def _play(attack: Attack, setting: Setting) -> Reading:
    try:
        return attack.play(setting)
    except SparseSecAggError as refusal:
        return Reading(0, type(refusal).__name__)


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Put something else in the place of a function while a control runs."""
    kept = owner.__dict__[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, kept)


def refusal_of(errors: list[ProtocolError]) -> str | None:
    """Return the type of the first refusal."""
    return type(errors[0]).__name__ if errors else None
