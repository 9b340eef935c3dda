"""Secrets never print, pickle or compare by accident."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import pprint
import traceback
from typing import Any

import msgspec
import pytest

from sparsesecagg.crypto import secrets
from sparsesecagg.crypto.secrets import MaskSeed, PrivateKey, Secret

VALUE = b"correct horse battery staple 32!"
KINDS = [kind for kind in vars(secrets).values() if isinstance(kind, type) and issubclass(kind, Secret)]


def shows(text: str) -> bool:
    """The text gives away the secret, whole or in part, in plain or as hexadecimal or as numbers."""
    return any(part in text for part in ("correct", "staple", VALUE[:4].hex(), str(list(VALUE[:4]))[1:-1]))


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def secret(request: pytest.FixtureRequest) -> Secret:
    kind: type[Secret] = request.param
    return kind(VALUE)


def test_a_secret_prints_as_its_kind_and_size(secret: Secret) -> None:
    assert repr(secret) == str(secret) == f"{type(secret).__name__}(<32 bytes>)"


def test_no_way_of_formatting_shows_it(secret: Secret, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger(__name__).warning("%s %r", secret, secret)
    ways = [
        f"{secret} {secret!s} {secret!r} {secret!a} {secret:>99}",
        "%s %r" % (secret, secret),  # noqa: UP031
        format(secret, "x"),
        pprint.pformat({"secret": [secret]}),
        json.dumps({"secret": secret}, default=str),
        caplog.text,
    ]
    assert not any(map(shows, ways))
    assert all("<32 bytes>" in way for way in ways)


def test_tracebacks_that_print_variables_do_not_show_it(secret: Secret) -> None:
    try:
        raise RuntimeError(secret)
    except RuntimeError as error:
        text = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    assert "<32 bytes>" in text
    assert not shows(text.replace(repr(VALUE), ""))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_it_can_not_be_pickled(secret: Secret, protocol: int) -> None:
    with pytest.raises(TypeError, match="can't be pickled"):
        pickle.dumps(secret, protocol)


def test_other_ways_of_writing_it_down_fail_too(secret: Secret) -> None:
    ways: list[Any] = [bytes, json.dumps, msgspec.json.encode, msgspec.msgpack.encode, list, int, copy.deepcopy]
    for write in ways:
        with pytest.raises(TypeError):
            write(secret)


def test_only_reveal_gives_the_bytes(secret: Secret) -> None:
    assert secret.reveal() == VALUE
    assert isinstance(secret.reveal(), bytes)


def test_secrets_are_equal_by_value_within_one_kind(secret: Secret) -> None:
    assert secret == type(secret)(VALUE)
    assert secret != type(secret)(VALUE[::-1])
    assert secret != type(secret)(VALUE[:-1])
    assert secret != VALUE


def test_two_kinds_are_never_equal() -> None:
    assert MaskSeed(VALUE) != PrivateKey(VALUE)
    assert Secret(VALUE) != MaskSeed(VALUE)


def test_it_has_no_hash(secret: Secret) -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(secret)


def test_wiping_overwrites_it_but_not_its_copies(secret: Secret) -> None:
    twin = copy.copy(secret)
    secret.wipe()
    assert secret.reveal() == bytes(32)
    assert twin.reveal() == VALUE
    assert type(twin) is type(secret)


def test_it_does_not_follow_the_buffer_that_it_was_made_from() -> None:
    buffer = bytearray(VALUE)
    secret = Secret(buffer)
    buffer[:] = bytes(32)
    assert secret.reveal() == VALUE
