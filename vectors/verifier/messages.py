"""Messages: the envelope, the fields of each kind, and decoding (6)."""

from typing import Any, NamedTuple

from vectors.verifier.errors import demand
from vectors.verifier.hashing import digest
from vectors.verifier.messagepack import Value, read_array, write_array

VERSION = b"\x02"
FROM_USERS = {
    "advertise keys": "number sealing_key nonce",
    "share keys": "number head shares",
    "upload": "number locations words tags",
    "confirm": "number tags",
    "unmask": "number owners shares",
}
FROM_SERVER = {
    "epoch keys": "first_round draw present keys",
    "order": "members committees heads terms history shares",
    "confirm request": "survivors",
    "unmask request": "survivors tags confirmers confirmations",
}
OF_DRAWS = {
    "draw request": "roster_digest population named",
    "draw reveal": "number reveal",
    "draw proof": "population named reveals",
}  # After the draw's number.
FIXED_LENGTHS = {
    "view": 8, "number": 4, "sealing_key": 32, "nonce": 16, "head": 64,
    "terms": 32, "roster_digest": 32, "reveal": 96,
}  # fmt: skip
INTEGERS = {"round_number": (0, 2**63 - 1), "first_round": (0, 2**63 - 1), "draw_number": (1, 16)}
SETS = {"present", "members", "survivors", "confirmers", "owners", "population", "named"}


class Message(NamedTuple):
    """A decoded message; `fields` are those after round number and view."""

    name: str
    round_number: int
    view: bytes
    fields: dict[str, Any]

    @property
    def sender(self) -> int:
        """The user whose number the message carries."""
        return int.from_bytes(self.fields["number"], "little")


def checksum(versioned_array: bytes) -> bytes:
    """Return what protects from accidents on the way: Poly1305, written from RFC 8439, 2.5."""
    key = int.from_bytes(digest("message"), "little")
    point, offset = key & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF, key >> 128
    value = 0
    for start in range(0, len(versioned_array), 16):
        block = versioned_array[start : start + 16] + b"\x01"
        value = (value + int.from_bytes(block, "little")) * point % (2**130 - 5)
    return (value + offset).to_bytes(17, "little")[:8]


def checksum_fits(data: bytes) -> bool:
    """Tell whether the last eight bytes are the checksum of the others."""
    return len(data) >= 9 and checksum(data[:-8]) == data[-8:]


def encode_array(*values: Value) -> bytes:
    """Write a message, name and fields as given."""
    body = VERSION + write_array(values)
    return body + checksum(body)


def encode(name: str, round_number: int, view: bytes, *fields: Value) -> bytes:
    """Write a message of a round."""
    return encode_array(name, round_number, view, *fields)


def read_fields(data: bytes, names: dict[str, str], before: str) -> tuple[str, dict[str, Any]]:
    """Read name and fields of one of these messages."""
    demand(data[:1] == VERSION, "MalformedMessage", "another version")
    demand(checksum_fits(data), "MalformedMessage", "a checksum that does not fit")
    values = read_array(data[1:-8])
    name = values[0] if values else None
    demand(isinstance(name, str) and name in names, "MalformedMessage", "a name that this side does not receive")
    if name == "unmask request" and len(values) in (5, 6):
        values += [b""] * (7 - len(values))
    keys = [*before.split(), *names[str(name)].split()]
    demand(len(values) == 1 + len(keys), "MalformedMessage", "another number of fields")
    return str(name), {key: checked(key, value) for key, value in zip(keys, values[1:], strict=True)}


def decode(data: bytes, names: dict[str, str]) -> Message:
    """Read a message of one of these names, `FROM_USERS` or `FROM_SERVER`."""
    name, fields = read_fields(data, names, "round_number view")
    return Message(name, fields.pop("round_number"), fields.pop("view"), fields)


def decode_draw(data: bytes, name: str) -> dict[str, Any]:
    """Read the fields of this message of a draw."""
    fields = read_fields(data, {name: OF_DRAWS[name]}, "draw_number")[1]
    return {"draw": fields.pop("draw_number"), **fields}


def checked(key: str, value: Value) -> Value:
    """Return a field if type, range and length are right."""
    if key in INTEGERS:
        least, most = INTEGERS[key]
        demand(type(value) is int, "MalformedMessage", f"{key} has another type")  # True is none.
        demand(least <= int(value) <= most, "MalformedMessage", f"{key} is out of range")
        return value
    demand(isinstance(value, bytes), "MalformedMessage", f"{key} has another type")
    assert isinstance(value, bytes)
    demand(len(value) == FIXED_LENGTHS.get(key, len(value)), "MalformedMessage", f"{key} has another length")
    demand(key not in SETS or len(value) <= 2**17, "MalformedMessage", f"{key} is longer than any set")
    return value
