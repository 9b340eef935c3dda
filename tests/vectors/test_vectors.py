"""The committed vectors are those that the generator makes, and the library computes what they say."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
from vector_replay import FOLDER, ROOT, ReplayedRound, load, names, read_roster

from sparsesecagg.crypto import sealing, shamir
from sparsesecagg.crypto.identity import IdentityKey, RunSecret, enrol
from sparsesecagg.crypto.kdf import derive, digest
from sparsesecagg.crypto.keys import KeyAgreement, public_key
from sparsesecagg.crypto.secrets import AgreedSecret, PatternSeed, PrivateKey, PrivateSeed, Secret
from sparsesecagg.crypto.stream import MaskStream, Scratch
from sparsesecagg.field import Word, pack, unpack
from sparsesecagg.patterns import Committee, Full, PatternSettings
from sparsesecagg.patterns.gaps import GapTable, bernoulli_positions
from sparsesecagg.patterns.graphs import CircleGraph, permutations, share_graph
from sparsesecagg.protocol import RoundParameters
from sparsesecagg.protocol.locations import decode_locations, encode_locations
from sparsesecagg.protocol.masking import pair_seeds, private_mask_seed
from sparsesecagg.protocol.membership import nonce_commitment
from sparsesecagg.protocol.messages import decode_client_message, decode_server_message, encode
from sparsesecagg.quantize import Digits, Quantizer

ROUNDS = [name for name in names() if name.startswith("round_")]
raw = bytes.fromhex


def test_the_committed_vectors_are_those_that_the_generator_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    made: dict[str, str] = import_module("vectors.generate").make_all()
    committed = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    assert sorted(made) == sorted(committed)
    assert [name for name, text in made.items() if committed[name] != text] == []


def test_the_vectors_stay_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*.json")) < 1_000_000


# Whole rounds


@pytest.mark.parametrize("name", ROUNDS)
def test_a_recorded_round_replays_byte_for_byte(name: str) -> None:
    """Every message, from the recorded randomness and updates; then the aggregate."""
    replayed = ReplayedRound(name)
    replayed.play()
    result, expected = replayed.finish(), replayed.vector["aggregate"]
    assert result.total.tolist() == expected["total"]
    assert list(result.survivors) == expected["survivors"]
    assert dict(result.dropped) == expected["dropped"]
    assert result.contributors_per_block.tolist() == expected["contributors_per_block"]
    assert (None if result.weight_per_block is None else result.weight_per_block.tolist()) == expected[
        "weight_per_block"
    ]
    assert result.clipped == expected["clipped"]
    assert all(replayed.masked.get(user, {}) == replayed.recorded(user) for user in range(replayed.params.clients))


@pytest.mark.parametrize("name", ROUNDS)
def test_the_aggregate_is_the_plain_sum_of_what_the_survivors_masked(name: str) -> None:
    """Read off the file, without any protocol."""
    replayed = ReplayedRound(name)
    params, expected = replayed.params, replayed.vector["aggregate"]
    sums = np.zeros(params.layout.blocks * params.width, np.int64)
    for user in expected["survivors"]:
        for place, value in replayed.recorded(user).items():
            sums[place] += value
    blocks = sums.reshape(params.layout.blocks, params.width)
    assert params.layout.flatten(blocks).tolist() == expected["total"]


def test_the_rounds_cover_patterns_words_and_dropouts_at_every_stage() -> None:
    vectors = [load(name) for name in ROUNDS]
    fields = [vector["parameters"]["fields"] for vector in vectors]
    assert {field["pattern"] for field in fields} == {"full", "pairwise", "committee"}
    assert {field["modulus_bits"] for field in fields} == {8, 12, 16, 24, 32}
    silent = {user.get("silent_from") for vector in vectors for user in vector["users"]}
    assert silent == {None, "ADVERTISE_KEYS", "SHARE_KEYS", "UPLOAD", "CONFIRM", "UNMASK"}


# Building blocks


def test_digest_and_derive() -> None:
    vector = load("digest_and_derive")
    for case in vector["digest"]:
        assert digest(case["label"], *map(raw, case["parts"])).hex() == case["digest"]
    for case in vector["derive"]:
        made = derive(raw(case["secret"]), case["label"], raw(case["context"]), raw(case["names"]), case["length"])
        assert made.hex() == case["derived"]


def test_x25519_agreement() -> None:
    for case in load("x25519_agreement")["cases"]:
        mine, theirs = PrivateKey(raw(case["private"])), PrivateKey(raw(case["peer_private"]))
        assert public_key(mine).hex() == case["public"]
        assert public_key(theirs).hex() == case["peer_public"]
        assert KeyAgreement(mine).with_peer(public_key(theirs)).reveal().hex() == case["agreed"]
        assert KeyAgreement(theirs).with_peer(public_key(mine)).reveal().hex() == case["agreed"]


def test_seeds_and_commitments() -> None:
    vector = load("seeds_and_commitments")
    pair, private, nonce = vector["pair"], vector["private_mask"], vector["nonce_commitment"]
    for one, other in (pair["users"], reversed(pair["users"])):
        made = pair_seeds(AgreedSecret(raw(pair["agreed"])), raw(pair["context"]), one, other)
        assert [seed.reveal().hex() for seed in made] == [pair["mask_seed"], pair["pattern_seed"]]
    seed = private_mask_seed(PrivateSeed(raw(private["private_seed"])), raw(private["context"]), private["user"])
    assert seed.reveal().hex() == private["mask_seed"]
    parts = (raw(nonce[name]) for name in ("sealing_key", "mask_key", "nonce"))
    assert nonce_commitment(*parts).hex() == nonce["commitment"]


def test_shamir() -> None:
    for case in load("shamir")["cases"]:
        secrets = [raw(secret) for secret in case["secrets"]]
        made = shamir.split(secrets, np.array(case["holders"]), case["threshold"], Secret(raw(case["seed"])))
        assert [shamir.encode_shares(share).hex() for share in made] == case["shares"]
        for combined in case["combine"]:
            rows = [case["holders"].index(holder) for holder in combined["holders"]]
            holders = tuple(combined["holders"])
            assert shamir.lagrange_at_zero(holders).tolist() == combined["lagrange_at_zero"]
            assert shamir.combine(made[rows, :1].transpose(1, 0, 2), holders) == [raw(combined["secret"])]


def test_sealing() -> None:
    for case in load("sealing")["cases"]:
        agreed, context = AgreedSecret(raw(case["agreed"])), raw(case["context"])
        who = case["sender"], case["receiver"]
        key = sealing.sealing_key(agreed, context, *who)
        assert key.reveal().hex() == case["sealing_key"]
        assert sealing.seal(key, raw(case["plain"]), int(case["round_number"]), *who).hex() == case["sealed"]
        assert sealing.unseal(key, raw(case["sealed"]), int(case["round_number"]), *who).hex() == case["plain"]
        confirm_key = sealing.confirm_key(agreed, context, *who)
        assert confirm_key.reveal().hex() == case["confirm_key"]
        assert sealing.confirmation(confirm_key, raw(case["statement"]), 16).hex() == case["tag"]


def test_mask_stream() -> None:
    for case in load("mask_stream")["cases"]:
        word, count = Word.of(case["bits"]), len(case["words"])
        words = MaskStream(Secret(raw(case["seed"])), word).words(count, Scratch(word, count))
        assert word.reduce(words.astype(word.accumulator)).tolist() == case["words"]


def test_roster() -> None:
    vector = load("roster")
    assert read_roster(vector["run"], vector["users"]).digest.hex() == vector["digest"]
    for user in vector["users"]:
        entry = enrol(IdentityKey(raw(user["identity_private"])), vector["run"], RunSecret(raw(user["run_secret"])))
        assert entry.as_json().items() <= user.items()


def test_gap_sampling() -> None:
    for case in load("gap_sampling")["cases"]:
        probability = int(case["probability"], 16)
        assert probability == (case["alpha_q32"] << 32) // case["degree"]
        table = GapTable.of(probability).cumulative.tolist()
        assert len(table) == case["table_size"]
        assert [*table[:4], table[-1]] == [int(entry, 16) for entry in case["table"]]
        (positions,) = bernoulli_positions([PatternSeed(raw(case["pattern_seed"]))], case["dim"], probability)
        assert positions.tolist() == case["positions"]


def test_share_graph() -> None:
    for case in load("share_graph")["cases"]:
        users = np.array(case["users"])
        assert permutations(raw(case["seed"]), "share graph", users, 1)[0].tolist() == case["circle"]
        graph = share_graph(raw(case["seed"]), users, case["neighbours"] or None)
        for row in case["graph"]:
            assert graph.neighbours(row["user"]).tolist() == row["neighbours"]


def test_committees() -> None:
    for case in load("committees")["cases"]:
        users = np.array(case["members"])
        chosen = [case[name] for name in ("clients", "dim", "alpha_q32")]
        settings = PatternSettings(*chosen, case["neighbours"] or None, case["stripes"])
        pattern = Committee(settings, users, raw(case["context"]), CircleGraph(users, None))
        assert (pattern.layout.blocks, pattern.layout.length) == (case["blocks"], case["length"])
        assert Committee.contributors(settings) == case["contributors"]
        assert [pattern.committee(block).tolist() for block in range(case["blocks"])] == case["committees"]
        for row in case["users"]:
            peers = [note["peer"] for note in row["peers"]]
            assert pattern.peers(row["user"]) == peers
            assert list(pattern.selected(row["user"], [])) == row["selected"]
            shared = pattern.shared(row["user"], peers, [])
            assert [list(blocks) for blocks in shared] == [note["blocks"] for note in row["peers"]]


def test_full_layout() -> None:
    for case in load("full_layout")["cases"]:
        layout = Full.make_layout(PatternSettings(3, case["dim"], 1 << 32, None, 1))
        assert (layout.blocks, layout.length) == (case["blocks"], case["length"])


def test_quantise() -> None:
    vector = load("quantise")
    for case in vector["fit"]:
        word = Word.of(case["modulus_bits"])
        quantizer = Quantizer.fit(word, case["contributors"], case["clip"])
        assert (quantizer.limit, quantizer.scale) == (case["limit"], case["scale"])
        digits = Digits.fit(word, case["contributors"], case["maxima"])
        assert (digits.digit_bits, list(digits.counts)) == (case["digit_bits"], case["digit_counts"])
        assert digits.write(case["values"]).tolist() == case["digits"]
        assert digits.read(np.array(case["digits"], np.int64)).tolist() == case["values"]
    for case in vector["lift"]:
        word = Word.of(case["modulus_bits"])
        assert word.lift(np.array(case["words"], word.dtype)).tolist() == case["signed"]


def test_parameters() -> None:
    for case in load("parameters")["cases"]:
        params = RoundParameters.decode(raw(case["bytes"]))
        assert params.encode().hex() == case["bytes"]
        for name, value in case["fields"].items():
            assert _plain(getattr(params, name), name) == value
        assert (params.digest.hex(), params.view.hex()) == (case["digest"], case["view"])
        made = (params.holders, params.contributors, params.width, params.authenticated)
        assert made == (case["holders"], case["contributors"], case["width"], case["authenticated"])


def test_messages() -> None:
    for case in load("messages")["cases"]:
        decode = decode_client_message if "number" in case["fields"] else decode_server_message
        message = decode(raw(case["bytes"]))
        for name, value in case["fields"].items():
            assert _plain(getattr(message, name)) == value
        assert encode(message).hex() == case["bytes"]


def test_packing() -> None:
    for case in load("packing")["cases"]:
        word = Word.of(case["bits"])
        assert bytes(pack(np.array(case["words"], word.dtype), word)).hex() == case["bytes"]
        assert unpack(raw(case["bytes"]), len(case["words"]), word).tolist() == case["words"]


def test_locations() -> None:
    for case in load("locations")["cases"]:
        assert encode_locations(np.array(case["positions"], np.int64), case["dim"]).hex() == case["bytes"]
        assert decode_locations(raw(case["bytes"]), case["dim"]).tolist() == case["positions"]


def _plain(value: Any, name: str = "") -> Any:
    """Return a field as it is written in a vector."""
    if name == "round_number":
        return str(value)
    return value if isinstance(value, int | float | str) else bytes(value).hex()
