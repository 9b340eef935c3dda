"""Messages: every kind survives the wire, and no bytes raise anything but `MalformedMessage`.

Kinds and fields are read from the message classes, so that a new message or field is tested as soon as it exists.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from reference.checksum import poly1305
from sparsesecagg.crypto.kdf import CHECKSUM_SIZE
from sparsesecagg.errors import MalformedMessage
from sparsesecagg.protocol import messages
from sparsesecagg.protocol.messages import (
    ClientMessage,
    Message,
    ServerMessage,
    Upload,
    decode_client_message,
    decode_server_message,
    decode_users,
    encode,
    encode_users,
    pieces,
    sorted_by_receiver,
)
from sparsesecagg.protocol.parameters import MAX_CLIENTS, VERSION
from strategies import mutated

CLIENT_KINDS: tuple[type[Message], ...] = get_args(ClientMessage)
SERVER_KINDS: tuple[type[Message], ...] = get_args(ServerMessage)
KINDS = CLIENT_KINDS + SERVER_KINDS


def decoder_of(kind: type[Message]) -> Callable[[bytes], Message]:
    return decode_client_message if kind in CLIENT_KINDS else decode_server_message


def fields_of(kind: type[Message]) -> list[inspect.Field]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return list(info.fields)


def values(field: inspect.Type, largest: int = 40) -> st.SearchStrategy[Any]:
    """Whatever a field allows."""
    match field:
        case inspect.IntType(ge=low, le=high):
            return st.integers(low, high)
        case inspect.BytesType(min_length=low, max_length=high):
            return st.binary(min_size=low or 0, max_size=largest if high is None else min(high, max(largest, low or 0)))
        case inspect.MemoryViewType():
            return st.binary(max_size=largest).map(memoryview)
    raise AssertionError(f"no strategy for {field}")


@st.composite
def any_message(draw: st.DrawFn, kinds: tuple[type[Message], ...] = KINDS) -> Message:
    kind = draw(st.sampled_from(kinds))
    return kind(*(draw(values(field.type)) for field in fields_of(kind)))


def example(kind: type[Message], fill: bytes = b"\x5a") -> Message:
    """A plain message of a kind, without drawing."""

    def value(field: inspect.Type) -> Any:
        match field:
            case inspect.IntType():
                return 7
            case inspect.BytesType(min_length=low):
                return fill * (low or 9)
        return memoryview(fill * 24)

    return kind(*(value(field.type) for field in fields_of(kind)))


def on_wire(body: bytes) -> bytes:
    """Put version and checksum around a body, as an attacker can: what follows must not lean on the checksum."""
    label, content = b"sparsesecagg/v3/message", bytes([VERSION]) + body
    key = hashlib.sha256(len(label).to_bytes(8, "little") + label).digest()
    return content + poly1305(key, content)[:CHECKSUM_SIZE]


def body_of(message: Message) -> bytes:
    """What stands between version and checksum."""
    return encode(message)[1:-CHECKSUM_SIZE]


def parts_of(message: Message) -> list[Any]:
    """Name and fields as MessagePack has them."""
    parts = msgspec.msgpack.decode(body_of(message))
    assert isinstance(parts, list)
    return parts


def raw(kind: type[Message], changes: dict[str, Any]) -> bytes:
    """The bytes of an example, some of its fields replaced by anything, unchecked."""
    tag = kind.__struct_config__.tag
    parts = [changes.get(field.name, getattr(example(kind), field.name)) for field in fields_of(kind)]
    return on_wire(msgspec.msgpack.encode([tag, *parts]))


# Round trips


@given(any_message())
def test_every_message_survives_the_wire(message: Message) -> None:
    read = decoder_of(type(message))(encode(message))
    assert type(read) is type(message)
    assert read == message


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_is_version_name_and_fields_and_checksum(kind: type[Message]) -> None:
    """Also shows that the unchecked encoder of these tests writes real messages."""
    assert encode(example(kind)) == raw(kind, {})
    assert decoder_of(kind)(raw(kind, {})) == example(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_messages_are_frozen(kind: type[Message]) -> None:
    message = example(kind)
    for name in message.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(message, name, getattr(message, name))


def test_every_kind_has_a_name_of_its_own() -> None:
    names = [kind.__struct_config__.tag for kind in KINDS]
    assert len(set(names)) == len(names)
    defined = [kind for kind in vars(messages).values() if isinstance(kind, type) and issubclass(kind, Message)]
    assert set(KINDS) == {kind for kind in defined if isinstance(kind.__struct_config__.tag, str)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_is_little_more_than_its_contents(kind: type[Message]) -> None:
    """Version, checksum, name, and a few bytes before each field."""
    message = example(kind, b"\x5a" * 1000)
    parts = [getattr(message, name) for name in message.__struct_fields__]
    contents = sum(len(part) for part in parts if not isinstance(part, int))
    assert len(encode(message)) <= contents + 5 * len(parts) + 40


@pytest.mark.parametrize("kind", CLIENT_KINDS)
def test_the_size_does_not_depend_on_who_sends(kind: type[Message]) -> None:
    sizes = {
        len(encode(msgspec.structs.replace(example(kind), number=messages.user_number(user))))
        for user in (0, 1, 127, 128, 255, 256, MAX_CLIENTS - 1)
    }
    assert len(sizes) == 1


@pytest.mark.parametrize("user", [0, 1, 255, 256, MAX_CLIENTS - 1])
def test_a_message_tells_its_sender(user: int) -> None:
    for kind in CLIENT_KINDS:
        message = msgspec.structs.replace(example(kind), number=messages.user_number(user))
        assert decode_client_message(encode(message)).sender == user


def test_the_words_of_an_upload_are_not_copied() -> None:
    data = encode(example(Upload))
    upload = decode_client_message(data)
    assert isinstance(upload, Upload)
    assert np.shares_memory(np.frombuffer(upload.words, np.uint8), np.frombuffer(data, np.uint8))


# Refusals


def test_an_unknown_version_is_refused_by_number() -> None:
    for version in set(range(256)) - {VERSION}:
        data = bytes([version]) + encode(example(Upload))[1:]
        for decode in (decode_client_message, decode_server_message):
            with pytest.raises(MalformedMessage, match=rf"version {VERSION}, found version {version}$"):
                decode(data)


def test_no_bytes_at_all_are_refused() -> None:
    for decode in (decode_client_message, decode_server_message):
        with pytest.raises(MalformedMessage, match="found nothing"):
            decode(b"")


@pytest.mark.parametrize("kind", KINDS)
def test_truncated_bytes_are_refused(kind: type[Message]) -> None:
    """Whether or not the checksum fits what is left."""
    data, body = encode(example(kind)), body_of(example(kind))
    cut = [data[:size] for size in range(len(data))] + [on_wire(body[:size]) for size in range(len(body))]
    for part in cut:
        with pytest.raises(MalformedMessage):
            decoder_of(kind)(part)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("more", [b"\x00", b"\xc0", b"\xff", bytes(50)])
def test_trailing_bytes_are_refused(kind: type[Message], more: bytes) -> None:
    for longer in (encode(example(kind)) + more, on_wire(body_of(example(kind)) + more)):
        with pytest.raises(MalformedMessage):
            decoder_of(kind)(longer)


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_more_is_refused(kind: type[Message]) -> None:
    with pytest.raises(MalformedMessage):
        decoder_of(kind)(on_wire(msgspec.msgpack.encode([*parts_of(example(kind)), 0])))


@pytest.mark.parametrize("kind", KINDS)
def test_a_required_field_less_is_refused(kind: type[Message]) -> None:
    required = sum(field.required for field in fields_of(kind))
    for size in range(1 + required):
        with pytest.raises(MalformedMessage):
            decoder_of(kind)(on_wire(msgspec.msgpack.encode(parts_of(example(kind))[:size])))


@pytest.mark.parametrize("kind", KINDS)
def test_the_other_side_does_not_read_it(kind: type[Message]) -> None:
    """A server's message sent to the server is no client's message, and the other way round."""
    other = decode_server_message if kind in CLIENT_KINDS else decode_client_message
    with pytest.raises(MalformedMessage):
        other(encode(example(kind)))


@pytest.mark.parametrize("kind", KINDS)
def test_fields_keep_to_their_sizes(kind: type[Message]) -> None:
    """One byte less than the least and one more than the most are refused, for every field with a limit."""
    for field in fields_of(kind):
        if isinstance(field.type, inspect.BytesType):
            low, high = field.type.min_length, field.type.max_length
            wrong = [size for size in ((low or 0) - 1, (high or -2) + 1) if size >= 0]
            for size in wrong:
                with pytest.raises(MalformedMessage):
                    decoder_of(kind)(raw(kind, {field.name: bytes(size)}))


def test_sets_of_users_keep_to_the_largest_cohort() -> None:
    """Every kind of message has its sets limited, wherever it names users."""
    sets = {"present", "members", "survivors", "owners"}
    named = [field for kind in KINDS for field in fields_of(kind) if field.name in sets]
    assert len(named) == 5
    assert all(msgspec.structs.asdict(field.type)["max_length"] == MAX_CLIENTS // 8 for field in named)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [-1, 2**63, 2**64 - 1, 1.5, True, None, "1", b"1", [1]])
def test_a_round_number_that_is_none_is_refused(kind: type[Message], number: object) -> None:
    with pytest.raises(MalformedMessage):
        decoder_of(kind)(raw(kind, {"round_number": number}))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rubbish", [None, 5, 1.5, [1, 2], {"a": 1}])
def test_bytes_that_are_something_else_are_refused(kind: type[Message], rubbish: object) -> None:
    for field in fields_of(kind):
        if not isinstance(field.type, inspect.IntType):
            with pytest.raises(MalformedMessage):
                decoder_of(kind)(raw(kind, {field.name: rubbish}))


@pytest.mark.parametrize(
    "body",
    [
        b"\xc0",
        b"\x90",
        b"\x91\xa3abc",
        b"\x80",
        b"\x81\xa4type\xa6upload",
        b"\xdd\xff\xff\xff\xff",
        b"\x93\xa6upload\xc6\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xffabc",
        b"\x91\xa2\xff\xfe",
        b"\x91" * 100_000,
        b"\x81\x01" * 100_000,
        b"\xc1",
        b"\xd4\x01\x02",
    ],
    ids=range(13),
)
def test_other_messagepack_and_boasted_lengths_are_refused(body: bytes) -> None:
    """No recursion without end, no memory for lengths that are only claimed."""
    for decode in (decode_client_message, decode_server_message):
        with pytest.raises(MalformedMessage):
            decode(on_wire(body))


@given(any_message(), st.data())
def test_bytes_damaged_on_the_way_are_refused(message: Message, data: st.DataObject) -> None:
    """All of them: a changed word would otherwise end in the sum."""
    damaged = data.draw(mutated(encode(message)))
    if damaged != encode(message):
        with pytest.raises(MalformedMessage):
            decoder_of(type(message))(damaged)


@pytest.mark.parametrize("kind", KINDS)
def test_every_single_flipped_bit_is_noticed(kind: type[Message]) -> None:
    data = encode(example(kind))
    for place in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[place // 8] ^= 1 << (place % 8)
        with pytest.raises(MalformedMessage):
            decoder_of(kind)(bytes(damaged))


@given(any_message(), st.data())
def test_bytes_changed_on_purpose_give_a_valid_message_or_a_typed_error(message: Message, data: st.DataObject) -> None:
    """With a checksum that fits. What is accepted keeps to all limits: it survives the wire once more."""
    decode = decoder_of(type(message))
    try:
        read = decode(on_wire(data.draw(mutated(body_of(message)))))
    except MalformedMessage:
        return
    assert decode(encode(read)) == read


@given(st.binary(max_size=200))
def test_random_bytes_give_a_typed_error(data: bytes) -> None:
    for decode in (decode_client_message, decode_server_message):
        for random in (data, bytes([VERSION]) + data, on_wire(data)):
            with pytest.raises(MalformedMessage):
                decode(random)


def test_an_error_shows_nothing_of_the_message() -> None:
    """It may hold somebody's shares, and errors end up in logs."""
    data = raw(messages.ShareKeys, {"shares": "a secret share"})
    with pytest.raises(MalformedMessage) as caught:
        decode_client_message(data)
    assert "secret share" not in str(caught.value)
    assert caught.value.__cause__ is None


# Sets of users


@given(st.integers(1, 300), st.data())
def test_a_set_of_users_survives(clients: int, data: st.DataObject) -> None:
    users = sorted(data.draw(st.sets(st.integers(0, clients - 1))))
    bitmap = encode_users(np.array(users, np.int64), clients)
    assert len(bitmap) == (clients + 7) // 8
    assert int.from_bytes(bitmap, "little") == sum(1 << user for user in users)
    assert decode_users(bitmap, clients).tolist() == users


@given(st.integers(1, 300), st.integers(0, 50))
def test_a_set_for_another_cohort_is_refused(clients: int, size: int) -> None:
    if size != (clients + 7) // 8:
        with pytest.raises(MalformedMessage, match=f"got {size}"):
            decode_users(bytes(size), clients)


@pytest.mark.parametrize(("clients", "user"), [(1, 1), (7, 7), (9, 9), (9, 15), (100, 103)])
def test_a_user_beyond_the_cohort_is_refused_by_number(clients: int, user: int) -> None:
    bitmap = (1 << user).to_bytes((clients + 7) // 8, "little")
    with pytest.raises(MalformedMessage, match=f"index {user} "):
        decode_users(bitmap, clients)


@pytest.mark.parametrize("kind", KINDS)
def test_round_numbers_have_63_bits(kind: type[Message]) -> None:
    for number in (0, 1, 2**63 - 1):
        assert decoder_of(kind)(raw(kind, {"round_number": number})).round_number == number
    for number in (-1, 2**63, 2**64 - 1):
        with pytest.raises(MalformedMessage):
            decoder_of(kind)(raw(kind, {"round_number": number}))


def test_a_set_of_users_is_no_longer_than_the_largest_cohort_needs() -> None:
    """Refused before anybody looks at it."""
    for size, refused in ((MAX_CLIENTS // 8, False), (MAX_CLIENTS // 8 + 1, True)):
        data = raw(messages.UnmaskRequest, {"survivors": bytes(size)})
        if refused:
            with pytest.raises(MalformedMessage):
                decode_server_message(data)
        else:
            decode_server_message(data)


def test_sizes_are_those_of_the_specification() -> None:
    assert (CHECKSUM_SIZE, messages.USER_SIZE, messages.BINDING_SIZE, messages.SEALED_SIZE) == (8, 4, 8, 48)
    assert messages.LARGEST_ROUND == 2**63 - 1


@given(st.binary(max_size=60), st.integers(0, 8), st.integers(1, 9))
def test_pieces_are_cut_to_size_or_refused(data: bytes, count: int, size: int) -> None:
    if len(data) == count * size:
        cut = pieces(data, count, size, "things")
        assert len(cut) == count
        assert b"".join(cut) == data
        assert all(len(piece) == size for piece in cut)
    else:
        with pytest.raises(
            MalformedMessage, match=f"things of {count} users take {count * size} bytes, got {len(data)}"
        ):
            pieces(data, count, size, "things")


def piece(sender: int, receiver: int) -> bytes:
    return bytes([sender, receiver, sender ^ receiver])


@given(st.dictionaries(st.integers(0, 40), st.sets(st.integers(0, 40)), max_size=20))
def test_every_receiver_gets_its_pieces_in_the_order_of_the_senders(sent: dict[int, set[int]]) -> None:
    """The same as a loop over everybody."""
    pairs = {
        sender: (np.array(sorted(receivers), np.int64), b"".join(piece(sender, each) for each in sorted(receivers)))
        for sender, receivers in sent.items()
    }
    expected = {
        receiver: b"".join(piece(sender, receiver) for sender in sorted(sent) if receiver in sent[sender])
        for receiver in set().union(*sent.values())
    }
    assert sorted_by_receiver(pairs, 3) == expected
