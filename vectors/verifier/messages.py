"""Messages: the envelope, the fields of each kind, and decoding (5)."""

from typing import Any, NamedTuple

from vectors.verifier.errors import Refused, demand
from vectors.verifier.hashing import digest
from vectors.verifier.messagepack import Value, read_array, write_array

VERSION = b"\x03"
FROM_USERS = {
    "advertise keys": "number sealing_key",
    "share keys": "number mask_key commitment shares",
    "upload": "number locations words tags",
    "unmask": "number survivors owners shares",
}
FROM_SERVER = {
    "epoch keys": "first_round present keys",
    "round header": "members mask_keys context shares",
    "unmask request": "survivors tags",
}
FIXED_LENGTHS = {"binding": 8, "number": 4, "sealing_key": 32, "mask_key": 32, "commitment": 32, "context": 32}
INTEGERS = ("round_number", "first_round")
SETS = ("present", "members", "survivors", "owners")


class Message(NamedTuple):
    """A decoded message; `fields` are those after round number and binding."""

    name: str
    round_number: int
    binding: bytes
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


def encode(name: str, *fields: Value) -> bytes:
    """Write a message."""
    body = VERSION + write_array([name, *fields])
    return body + checksum(body)


def decode(data: bytes, names: dict[str, str]) -> Message:
    """Read a message of one of these names, `FROM_USERS` or `FROM_SERVER`."""
    demand(data[:1] == VERSION, "MalformedMessage", "another version")
    demand(checksum_fits(data), "MalformedMessage", "a checksum that does not fit")
    values = read_array(data[1:-8])
    name = values[0] if values else None
    if not isinstance(name, str) or name not in names:
        raise Refused("MalformedMessage", "a name that this side does not receive")
    keys = ["round_number", "binding", *names[name].split()]
    demand(len(values) == 1 + len(keys), "MalformedMessage", "another number of fields")
    fields: dict[str, Any] = {key: checked(key, value) for key, value in zip(keys, values[1:], strict=True)}
    return Message(name, fields.pop("round_number"), fields.pop("binding"), fields)


def checked(key: str, value: Value) -> Value:
    """Return a field if type, range and length are right."""
    if key in INTEGERS:
        demand(type(value) is int, "MalformedMessage", f"{key} has another type")  # True is none.
        demand(0 <= int(value) < 2**63, "MalformedMessage", f"{key} is out of range")
        return value
    demand(isinstance(value, bytes), "MalformedMessage", f"{key} has another type")
    assert isinstance(value, bytes)
    demand(len(value) == FIXED_LENGTHS.get(key, len(value)), "MalformedMessage", f"{key} has another length")
    demand(key not in SETS or len(value) <= 2**17, "MalformedMessage", f"{key} is longer than any set")
    return value
