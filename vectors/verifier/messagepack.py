"""The part of MessagePack that the protocol uses: an array of integers, floats, truth values, text, bytes (3, 5)."""

import struct
from collections.abc import Sequence

from vectors.verifier.errors import Refused, demand

Value = bool | int | float | str | bytes

SCALARS = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
SIZES = {0xC4: ">B", 0xC5: ">H", 0xC6: ">I", 0xD9: ">B", 0xDA: ">H", 0xDB: ">I", 0xDC: ">H", 0xDD: ">I"}


def shortest(number: int, *forms: tuple[int, str, int]) -> bytes:
    """Write a number in the first form (head, format, largest) that holds it."""
    for head, form, largest in forms:
        if number <= largest:
            return bytes([head]) + struct.pack(form, number)
    raise ValueError(number)


def write_value(value: Value) -> bytes:
    """Write one value in the shortest form of its type."""
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        return (
            bytes([0xA0 + len(value.encode())]) + value.encode()
        )  # All texts of the protocol have fewer than 32 bytes.
    if isinstance(value, bytes):
        size = len(value)
        return shortest(size, (0xC4, ">B", 2**8 - 1), (0xC5, ">H", 2**16 - 1), (0xC6, ">I", 2**32 - 1)) + value
    if value < 128:
        return struct.pack(">B", value)
    return shortest(
        value, (0xCC, ">B", 2**8 - 1), (0xCD, ">H", 2**16 - 1), (0xCE, ">I", 2**32 - 1), (0xCF, ">Q", 2**64 - 1)
    )


def write_array(values: Sequence[Value]) -> bytes:
    """Write an array."""
    head = bytes([0x90 + len(values)]) if len(values) < 16 else b"\xdc" + struct.pack(">H", len(values))
    return head + b"".join(map(write_value, values))


class Reader:
    """Bytes and how far they have been read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.place = 0

    def take(self, size: int) -> bytes:
        """Read some bytes."""
        demand(self.place + size <= len(self.data), "MalformedMessage", "MessagePack cut short")
        self.place += size
        return self.data[self.place - size : self.place]

    def unpack(self, form: str) -> int | float:
        """Read one number."""
        number: int | float = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return number

    def size(self, head: int) -> int:
        """Read the size behind a head."""
        return int(self.unpack(SIZES[head]))

    def value(self) -> Value:
        """Read one value, of the types that the protocol has."""
        head = self.take(1)[0]
        if head < 0x80:
            return head
        if head >= 0xE0:
            return head - 0x100
        if head in (0xC2, 0xC3):
            return head == 0xC3
        if head in SCALARS:
            return self.unpack(SCALARS[head])
        if head in (0xC4, 0xC5, 0xC6):
            return self.take(self.size(head))
        if 0xA0 <= head < 0xC0 or head in (0xD9, 0xDA, 0xDB):
            text = self.take(head - 0xA0 if head < 0xC0 else self.size(head))
            try:
                return text.decode()
            except UnicodeDecodeError:
                raise Refused("MalformedMessage", "text that is not UTF-8") from None
        raise Refused("MalformedMessage", f"a value of a type that no field has ({head:#x})")


def read_array(data: bytes) -> list[Value]:
    """Read one array with nothing behind it."""
    reader = Reader(data)
    head = reader.take(1)[0]
    demand(0x90 <= head < 0xA0 or head in (0xDC, 0xDD), "MalformedMessage", "no array")
    values = [reader.value() for _ in range(head - 0x90 if head < 0xA0 else reader.size(head))]
    demand(reader.place == len(data), "MalformedMessage", "bytes behind the array")
    return values
