"""What must be refused, and with which error.

Small operations are given with their inputs. Messages are given with a round of v1/ and the number of its messages that
have gone before, so that server or client is in the right state to refuse.
"""

from __future__ import annotations

from vectors import refused_contents as contents
from vectors import refused_messages as messages
from vectors import refused_parameters as settings
from vectors.forging import Rounds
from vectors.form import Vector


def make_failures(vectors: dict[str, Vector]) -> dict[str, Vector]:
    """Return all failures by the name of their file."""
    rounds = Rounds(vectors)
    made = {
        "truncated_message": ("A message cut short, lengthened or changed on the way.", messages.damaged(rounds)),
        "malformed_message": (
            "A message with an intact checksum that is none of this protocol.",
            messages.malformed(rounds),
        ),
        "wrong_round": ("A message of another round.", messages.elsewhere(rounds, "WrongRound", round_number=2)),
        "wrong_view": ("A message under other parameters.", messages.elsewhere(rounds, "WrongView", view=bytes(8))),
        "wrong_stage": ("A message that is early or late.", messages.wrong_stage(rounds)),
        "unknown_sender": ("A message from somebody who takes no part in the stage.", messages.unknown_sender(rounds)),
        "duplicate_message": ("A second message of one user in one stage.", messages.duplicate_message(rounds)),
        "low_order_key": ("Public keys with which everybody would know the agreed secret.", messages.low_order(rounds)),
        "duplicate_key": ("A public key that occurs twice.", messages.duplicate_key(rounds)),
        "replaced_key": (
            "A directory in which the server has replaced a user's own entry.",
            messages.replaced_key(rounds),
        ),
        "wrong_nonce": ("A nonce that was not committed to.", contents.wrong_nonce(rounds)),
        "wrong_length": ("Fields whose length does not follow from the parameters.", contents.wrong_length(rounds)),
        "padding_not_zero": ("Bits beyond the end that are not zero.", contents.padding()),
        "word_not_below_modulus": ("Words outside the field.", contents.big_words(rounds)),
        "bad_locations": ("Locations in no valid code.", contents.bad_locations(rounds)),
        "bad_share_index": ("Shares of secrets that the sender does not hold.", contents.bad_share_index(rounds)),
        "bad_share": ("Shares outside the field, and shares that do not fit together.", contents.bad_share(rounds)),
        "bad_seal": ("Sealed shares that do not open.", contents.bad_seal(rounds)),
        "refused_survivors": ("Sets of users that a client must not help to open.", contents.refused_survivors(rounds)),
        "bad_confirmation": ("Confirmations that do not add up to an agreement.", contents.bad_confirmation(rounds)),
        "threshold_not_met": ("Stages that too few users have finished.", contents.too_few(rounds)),
        "bad_parameters": ("Parameters that make no sense.", settings.bad_parameters()),
        "bad_roster": ("Rosters with a key that is not genuine.", settings.bad_roster(vectors["roster"])),
    }
    return {name: {"about": about, "cases": cases} for name, (about, cases) in made.items()}
