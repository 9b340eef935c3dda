"""What must be refused, and with which error.

Small operations are given with their inputs. Messages are given with a run of v3/ and the number of its steps that
have gone before, so that server or client is in the right state to refuse.
"""

from __future__ import annotations

from vectors import refused_contents as contents
from vectors import refused_headers as headers
from vectors import refused_messages as messages
from vectors import refused_parameters as settings
from vectors.forging import Runs
from vectors.form import Vector


def make_failures(vectors: dict[str, Vector]) -> dict[str, Vector]:
    """Return all failures by the name of their file."""
    runs = Runs(vectors)
    made = {
        "truncated_message": ("A message cut short, lengthened or changed on the way.", messages.damaged(runs)),
        "malformed_message": (
            "A message with an intact checksum that is none of this protocol.",
            messages.malformed(runs),
        ),
        "wrong_round": ("A message of another round.", messages.wrong_round(runs)),
        "wrong_binding": ("A message under other parameters, keys or headers.", messages.wrong_binding(runs)),
        "wrong_stage": ("A message that is early or late.", messages.wrong_stage(runs)),
        "already_answered": ("A round or stage that is over for this user.", messages.already_answered(runs)),
        "unknown_sender": ("A message from somebody who takes no part in the stage.", messages.unknown_sender(runs)),
        "duplicate_message": ("A second message of one user in one stage.", messages.duplicate_message(runs)),
        "low_order_key": ("Public keys with which everybody would know the agreed secret.", messages.low_order(runs)),
        "duplicate_key": ("A public key that occurs twice.", messages.duplicate_key(runs)),
        "replaced_key": ("Epoch keys that are not what a user sent.", messages.replaced_key(runs)),
        "bad_header": ("Headers that a user must not accept.", headers.bad_header(runs)),
        "bad_release": ("Survivors and tags for which nothing may be released.", headers.bad_release(runs)),
        "wrong_length": ("Fields whose length does not follow from the groups.", contents.wrong_length(runs)),
        "padding_not_zero": ("Bits beyond the end that are not zero.", contents.padding()),
        "word_not_below_modulus": ("Words outside the field.", contents.big_words(runs)),
        "bad_locations": ("Locations in no valid code.", contents.bad_locations(runs)),
        "bad_share": ("Shares of others, outside the field, or that do not fit together.", contents.bad_share(runs)),
        "bad_seal": ("Sealed shares that do not open.", contents.bad_seal()),
        "too_few": ("Stages that too few users have finished.", contents.too_few(runs)),
        "bad_parameters": ("Parameters that make no sense.", settings.bad_parameters()),
        "bad_roster": ("Rosters with a key that is not genuine.", settings.bad_roster(vectors["roster"])),
        "bad_epoch": ("Epochs that there may not be.", settings.bad_epoch()),
    }
    return {name: {"about": about, "cases": cases} for name, (about, cases) in made.items()}
