"""The one exception of this verifier: it names the error that the page demands (19)."""


class Refused(Exception):
    """Something must be refused, with this error; `option` is the parameter that an `InvalidInput` names."""

    def __init__(self, error: str, why: str, option: str = "") -> None:
        super().__init__(f"{error}: {why}")
        self.error = error
        self.option = option


def demand(condition: bool, error: str, why: str, option: str = "") -> None:
    """Refuse with `error` unless the condition holds."""
    if not condition:
        raise Refused(error, why, option)
