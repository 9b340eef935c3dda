"""Every way a round can fail, as a type that carries the facts.

Two families, because the remedies differ: `InvalidInput` is the caller's to mend (a bad option, an update of the
wrong length), `ProtocolError` is what a peer did or what dropouts made impossible. No error ever contains a secret:
error texts reach logs and, through engines such as Flower, the server.
"""

from numbers import Integral


def install_command(*extras: str) -> str:
    """Return the command that installs this package with some extras; the one place that says where it comes from."""
    return f"pip install '.[{','.join(extras)}]' in a checkout of the source (the package is not on PyPI yet)"


def plural(number: int, noun: str) -> str:
    """Return a noun as it follows a number."""
    return noun if number == 1 else f"{noun}s"


class SparseSecAggError(Exception):
    """Root of all errors raised on purpose by this package."""


class InvalidInput(SparseSecAggError, ValueError):
    """Input of ours that can't be used; says what is allowed.

    `option` is the parameter's name, so that the command line can name its own option.
    """

    def __init__(self, option: str, problem: str) -> None:
        self.option = option
        self.problem = problem
        super().__init__(f"{option} {problem}")


def require(option: str, holds: bool, problem: str) -> None:
    """Raise `InvalidInput` unless it holds."""
    if not holds:
        raise InvalidInput(option, problem)


def require_type(option: str, value: object, kind: type, *, optional: bool = False) -> None:
    """Raise `InvalidInput` unless a value is of a type, or None where that is allowed."""
    if not (isinstance(value, kind) or (optional and value is None)):
        raise InvalidInput(option, f"must be {kind.__name__}, got {type(value).__name__}")


def whole_number(option: str, value: object) -> int:
    """Return a whole number, NumPy's too, as Python's own; raise `InvalidInput` for anything else."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InvalidInput(option, f"must be a whole number, got {value!r}")
    return int(value)


class MissingExtra(SparseSecAggError):
    """An optional dependency is not installed; says how to install it."""

    def __init__(self, extra: str, purpose: str) -> None:
        self.extra = extra
        super().__init__(f"{purpose} needs the '{extra}' extra: {install_command(extra)}")


class LedgerUnusable(InvalidInput):
    """The file in which a client writes down what it has answered can't be used; the client sends nothing."""

    def __init__(self, problem: str) -> None:
        super().__init__("ledger", problem)


class ProtocolError(SparseSecAggError):
    """The round cannot continue because of a peer's message or the round's state."""


class MalformedMessage(ProtocolError):
    """Bytes that are not a valid message: truncated, oversized, trailing, mutated, or of an unknown version."""


class WrongStage(ProtocolError):
    """A message or call that does not belong to the stage the round is in: early, late, or a second time."""

    def __init__(self, got: str, expected: str) -> None:
        self.got, self.expected = got, expected
        super().__init__(f"got {got} while the round is at {expected}")


class WrongRound(ProtocolError):
    """A message of another round: stale or replayed."""

    def __init__(self, got: int, expected: int) -> None:
        self.got, self.expected = got, expected
        super().__init__(f"message of round {got} in round {expected}")


class WrongBinding(ProtocolError):
    """A message of a peer that works with other parameters, keys or context, such as another model."""

    def __init__(self, who: str) -> None:
        super().__init__(f"{who} uses different parameters, keys or context")


class UnknownSender(ProtocolError):
    """A sender that is not part of this stage."""

    def __init__(self, sender: int) -> None:
        self.sender = sender
        super().__init__(f"user {sender} is not expected in this stage")


class WrongSender(UnknownSender):
    """A message that names another user than the one that the transport knows it came from."""

    def __init__(self, sender: int, origin: int) -> None:
        super().__init__(sender)
        self.origin = origin
        self.args = (f"message claims sender {sender} but arrived from user {origin}",)


class DuplicateMessage(ProtocolError):
    """A second message of one sender in one stage."""

    def __init__(self, sender: int, stage: str) -> None:
        self.sender, self.stage = sender, stage
        super().__init__(f"user {sender} has already sent its {stage} message")


class InvalidKey(ProtocolError):
    """A public key that can't be used: a low-order point, or one that occurs twice."""


class InvalidShare(ProtocolError):
    """A secret share that does not open, belongs to somebody else, or does not fit the others."""


class RoundFailed(ProtocolError):
    """The round is over without a result; nothing was revealed, the model stays as it was, and the next may begin."""


class ThresholdNotMet(RoundFailed):
    """Too few users are left to open the sum; nothing was revealed."""

    def __init__(self, stage: str, survivors: int, needed: int) -> None:
        self.stage, self.survivors, self.needed = stage, survivors, needed
        super().__init__(f"{survivors} {plural(survivors, 'user')} left at {stage}, {needed} are needed")


class AlreadyAnswered(ProtocolError):
    """A round or stage that is over for this client, or a second, different request for one that it answered."""


class TooLittleOpened(RoundFailed):
    """Enough users answered, and yet no group's sum could be opened: what they sent stays hidden."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"nothing was opened: {reason}")


class PolicyViolation(ProtocolError):
    """The client's own policy forbids what the server asks for; the client sends nothing."""


class PrivacyBudgetExhausted(PolicyViolation):
    """One more round would spend more privacy than the user allows; it sends nothing."""

    def __init__(self, epsilon: float, allowed: float, delta: float) -> None:
        self.epsilon, self.allowed, self.delta = epsilon, allowed, delta
        super().__init__(f"the next round would spend epsilon {epsilon:.3g} at delta {delta:g}, {allowed:g} is allowed")


class RoundRefused(RoundFailed):
    """Clients refused what they were asked for, and too few are left without them; nothing was revealed."""

    def __init__(self, refusals: int, stage: str, reason: str) -> None:
        self.refusals, self.stage, self.reason = refusals, stage, reason
        super().__init__(f"{refusals} clients refused at {stage}: {reason}")


class WrongStep(ProtocolError):
    """A step that does not fit the model it came to, or does not lead where it says; the model stays as it was.

    The remedy is the whole model: ask again as a node that has none.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the step can't be applied: {reason}")
