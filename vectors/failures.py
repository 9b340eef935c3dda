"""What must be refused, and with which error.

Small operations are given with their inputs. Messages are given with a run of v2/ and the number of its steps that
have gone before, so that server or client is in the right state to refuse.
"""

from __future__ import annotations

from vectors import refused_contents as contents
from vectors import refused_messages as messages
from vectors import refused_orders as orders
from vectors import refused_parameters as settings
from vectors.forging import Runs
from vectors.form import Vector
from vectors.public import DrawnRoster


def make_failures(vectors: dict[str, Vector], drawn: DrawnRoster) -> dict[str, Vector]:
    """Return all failures by the name of their file."""
    runs = Runs(vectors)
    made = {
        "truncated_message": ("A message cut short, lengthened or changed on the way.", messages.damaged(runs)),
        "malformed_message": (
            "A message with an intact checksum that is none of this protocol.",
            messages.malformed(runs),
        ),
        "wrong_round": ("A message of another round.", messages.wrong_round(runs)),
        "wrong_view": ("A message under other parameters, another epoch or another order.", messages.wrong_view(runs)),
        "wrong_stage": ("A message that is early or late.", messages.wrong_stage(runs)),
        "already_answered": ("A round or stage that is over for this user.", messages.already_answered(runs)),
        "unknown_sender": ("A message from somebody who takes no part in the stage.", messages.unknown_sender(runs)),
        "duplicate_message": ("A second message of one user in one stage.", messages.duplicate_message(runs)),
        "low_order_key": ("Public keys with which everybody would know the agreed secret.", messages.low_order(runs)),
        "duplicate_key": ("A public key that occurs twice.", messages.duplicate_key(runs)),
        "replaced_key": ("Epoch keys that are not what a user sent.", messages.replaced_key(runs)),
        "bad_order": ("Orders that a user must not follow.", orders.bad_order(runs)),
        "bad_history": ("Declared survivors that can't be true, or were not true.", orders.bad_history(runs)),
        "bad_release": ("Survivors and tags for which nothing may be released.", orders.bad_release(runs)),
        "bad_confirmation": ("Confirmations that do not add up to an agreement.", orders.bad_confirmation(runs)),
        "wrong_length": ("Fields whose length does not follow from the groups.", contents.wrong_length(runs)),
        "padding_not_zero": ("Bits beyond the end that are not zero.", contents.padding()),
        "word_not_below_modulus": ("Words outside the field.", contents.big_words(runs)),
        "bad_locations": ("Locations in no valid code.", contents.bad_locations(runs)),
        "bad_share": ("Shares of others, outside the field, or that do not fit together.", contents.bad_share(runs)),
        "bad_seal": ("Sealed shares that do not open.", contents.bad_seal()),
        "too_few": ("Stages that too few users have finished.", contents.too_few(runs)),
        "bad_parameters": ("Parameters that make no sense.", settings.bad_parameters()),
        "bad_roster": ("Rosters with a key that is not genuine.", settings.bad_roster(vectors["roster"])),
        "bad_draw": ("Draws that break the rules.", settings.bad_draw(drawn)),
    }
    return {name: {"about": about, "cases": cases} for name, (about, cases) in made.items()}
