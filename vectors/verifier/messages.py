"""Messages: the envelope, the fields of each kind, and decoding (5)."""

from typing import NamedTuple

from vectors.verifier.errors import demand
from vectors.verifier.hashing import digest
from vectors.verifier.messagepack import Value, read_array, write_array

VERSION = b"\x01"
FROM_USERS = {
    "advertise keys": "number sealing_key mask_key nonce_commitment",
    "share keys": "number seed_commitment nonce shares",
    "upload": "number locations words",
    "confirm": "number tags",
    "unmask": "number owners shares",
}
FROM_SERVER = {
    "key directory": "users entries",
    "share delivery": "users nonces shares",
    "confirm request": "survivors",
    "unmask request": "survivors confirmers tags",
}
FIXED_LENGTHS = {
    "view": 8, "number": 2, "sealing_key": 32, "mask_key": 32,
    "nonce_commitment": 32, "seed_commitment": 32, "nonce": 16,
}  # fmt: skip


class Message(NamedTuple):
    """A decoded message; `fields` are those after round number and view."""

    name: str
    round_number: int
    view: bytes
    fields: dict[str, bytes]

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


def encode(name: str, round_number: int, view: bytes, *fields: bytes) -> bytes:
    """Write a message."""
    body = VERSION + write_array([name, round_number, view, *fields])
    return body + checksum(body)


def decode(data: bytes, names: dict[str, str]) -> Message:
    """Read a message of one of these names, `FROM_USERS` or `FROM_SERVER`."""
    demand(data[:1] == VERSION, "MalformedMessage", "another version")
    demand(checksum_fits(data), "MalformedMessage", "a checksum that does not fit")
    values = read_array(data[1:-8])
    name = values[0] if values else None
    if name == "unmask request" and len(values) in (4, 5):
        values += [b""] * (6 - len(values))
    demand(isinstance(name, str) and name in names, "MalformedMessage", "a name that this side does not receive")
    keys = ["view", *names[str(name)].split()]
    demand(len(values) == 2 + len(keys), "MalformedMessage", "another number of fields")
    number, contents = values[1], values[2:]
    demand(isinstance(number, int), "MalformedMessage", "a round number of another type")
    assert isinstance(number, int)
    demand(0 <= number < 2**63, "MalformedMessage", "a round number out of range")
    fields = {key: _bytes(key, value) for key, value in zip(keys, contents, strict=True)}
    return Message(str(name), number, fields.pop("view"), fields)


def _bytes(key: str, value: Value) -> bytes:
    demand(isinstance(value, bytes), "MalformedMessage", f"{key} has another type")
    assert isinstance(value, bytes)
    demand(len(value) == FIXED_LENGTHS.get(key, len(value)), "MalformedMessage", f"{key} has another length")
    return value
