"""The committed vectors are those that the generator makes, and the library computes what they say."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from sparsesecagg.crypto import sealing, shamir
from sparsesecagg.crypto.decoding import restore
from sparsesecagg.crypto.identity import IdentityKey, Roster, RunSecret, enrol
from sparsesecagg.crypto.kdf import derive, digest, expand, one_step
from sparsesecagg.crypto.keys import KeyAgreement, public_key
from sparsesecagg.crypto.secrets import (
    AgreedSecret,
    PairRatchets,
    PatternSeed,
    PrivateKey,
    RoundSecrets,
    Secret,
    SharedSecret,
)
from sparsesecagg.crypto.stream import KeyStream, MaskStream, Scratch
from sparsesecagg.field import WORD_BITS, Word, pack, unpack
from sparsesecagg.patterns.gaps import GapTable, bernoulli_positions, decode_locations, encode_locations
from sparsesecagg.patterns.masks import Pair, mask_seeds, pattern_seeds, private_mask_seeds
from sparsesecagg.patterns.sliced import Sliced, block_of
from sparsesecagg.privacy.mechanism import NoiseSeed, SkellamTable
from sparsesecagg.protocol import Parameters
from sparsesecagg.protocol.messages import decode_client_message, decode_server_message, encode
from sparsesecagg.rounding import Digits, Quantizer
from vector_replay import FOLDER, ROOT, ReplayedRun, load, names, read_roster

RUNS = [name for name in names() if name.startswith("run_")]
raw = bytes.fromhex


def test_the_committed_vectors_are_those_that_the_generator_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    made: dict[str, str] = import_module("vectors.generate").make_all()
    committed = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    assert sorted(made) == sorted(committed)
    assert [name for name, text in made.items() if committed[name] != text] == []


def test_the_vectors_stay_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*.json")) < 1_200_000


# Whole runs


@pytest.mark.parametrize("name", RUNS)
def test_a_recorded_run_replays_byte_for_byte(name: str) -> None:
    """Every message, from the recorded randomness and updates, and every result."""
    replayed = ReplayedRun(name)
    replayed.play()
    assert replayed.results
    assert not any(replayed.draws), "a client draws less than was recorded"


@pytest.mark.parametrize("name", RUNS)
def test_the_total_is_the_plain_sum_of_what_the_users_in_it_masked(name: str) -> None:
    """Read off the file, without any protocol."""
    vector = load(name)
    uploads: dict[int, dict[str, Any]] = {}
    for step in vector["steps"]:
        if "begin" in step:
            uploads = {}
        elif step.get("stage") == "UPLOAD" and "from" in step:
            uploads[step["from"]] = step
        elif "result" in step:
            result, total = step["result"], np.zeros(vector["parameters"]["fields"]["dim"], np.int64)
            contributors = np.zeros_like(total)
            for user in result["survivors"]:
                total[uploads[user]["coordinates"]] += uploads[user]["integers"]
                contributors[uploads[user]["coordinates"]] += 1
            assert total.tolist() == result["total"]
            assert contributors.tolist() == result["contributors"]


def test_the_runs_cover_patterns_words_groups_losses_and_liars() -> None:
    vectors = [load(name) for name in RUNS]
    fields = [vector["parameters"]["fields"] for vector in vectors]
    steps = [step for vector in vectors for step in vector["steps"]]
    assert {field["pattern"] for field in fields} == {"sliced", "full", "pairwise"}
    assert {5, 6, 8, 12, 16, 24, 32} <= {field["modulus_bits"] for field in fields}
    assert {any(raw(field["roster_digest"])) for field in fields} == {True, False}
    assert {(field["groups"] > 1, field["slices"] > 1) for field in fields} == {
        (False, False),
        (True, True),
        (True, False),
    }
    assert {step["stage"] for step in steps if "from" in step} == {"ADVERTISE_KEYS", "SHARE_KEYS", "UPLOAD", "UNMASK"}
    results = [step["result"] for step in steps if "result" in step]
    assert {field["noise_multiplier"] > 0 for field in fields} == {True, False}
    for what in ("lost", "false_shares", "weights", "excluded"):
        assert any(result[what] for result in results)
    assert {step.get("error") for step in steps if "close" in step} == {None, "ThresholdNotMet", "TooLittleOpened"}
    assert {step["stage"] for step in steps if "forged" in step} == {"SHARE_KEYS", "UPLOAD", "UNMASK"}


# Building blocks


def test_digest_and_derive() -> None:
    vector = load("digest_and_derive")
    for case in vector["digest"]:
        assert digest(case["label"], *map(raw, case["parts"])).hex() == case["digest"]
    for case in vector["derive"]:
        made = derive(raw(case["secret"]), case["label"], raw(case["context"]), raw(case["names"]), case["length"])
        assert made.hex() == case["derived"]
    for case in vector["expand"]:
        assert expand(raw(case["key"]), case["label"]).hex() == case["expanded"]
    for case in vector["one_step"]:
        [made] = one_step([raw(case["secret"])], case["label"], raw(case["context"]), [raw(case["names"])])
        assert made.hex() == case["derived"]


def test_x25519_agreement() -> None:
    for case in load("x25519_agreement")["cases"]:
        mine, theirs = PrivateKey(raw(case["private"])), PrivateKey(raw(case["peer_private"]))
        assert public_key(mine).hex() == case["public"]
        assert public_key(theirs).hex() == case["peer_public"]
        assert KeyAgreement(mine).with_peer(public_key(theirs)).reveal().hex() == case["agreed"]
        assert KeyAgreement(theirs).with_peer(public_key(mine)).reveal().hex() == case["agreed"]


def test_ratchets() -> None:
    for case in load("ratchets")["cases"]:
        who = case["sender"], case["receiver"]
        ratchet = sealing.pair_ratchet(raw(case["agreed"]), raw(case["epoch_digest"]), *who)
        assert ratchet == sealing.pair_ratchet(raw(case["agreed"]), raw(case["epoch_digest"]), *reversed(who))
        assert ratchet.hex() == case["first_ratchet"]
        ratchets = PairRatchets(ratchet)
        for _ in range(case["rounds_later"]):
            ratchets, _ = sealing.step(ratchets)
        assert ratchets == PairRatchets(raw(case["ratchet"]))
        secrets = sealing.step(ratchets)[1]
        assert secrets == RoundSecrets(raw(case["round_secret"]))
        [cipher] = sealing.ciphers(secrets)
        assert sealing.seal(cipher, *who, raw(case["plain"])).hex() == case["sealed"]
        assert sealing.unseal(cipher, *who, raw(case["sealed"])) == raw(case["plain"])
        assert sealing.tag(cipher, *who, raw(case["header_digest"])).hex() == case["tag"]


def test_seeds_of_masks() -> None:
    vector = load("packages")
    for case in vector["pair_masks"]:
        for one, other in (case["users"], reversed(case["users"])):
            pairs, context = [Pair(one, other, AgreedSecret(raw(case["agreed"])))], raw(case["header_digest"])
            made = [*mask_seeds(pairs, context), *pattern_seeds(pairs, context)]
            assert [seed.reveal().hex() for seed in made] == [case["mask_seed"], case["pattern_seed"]]
    for case in vector["private_masks"]:
        seeds = {case["user"]: SharedSecret(raw(case["private_seed"]))}
        [seed] = private_mask_seeds(seeds, raw(case["header_digest"]))
        assert seed.reveal().hex() == case["mask_seed"]


def test_mask_keys_and_commitments() -> None:
    """Written out: those of whole runs come from `make_package`."""
    for case in load("packages")["packages"]:
        number, user = int(case["round"]).to_bytes(8, "little"), case["user"].to_bytes(4, "little")
        private = PrivateKey(derive(raw(case["mask_secret"]), "mask key", raw(case["run"]), number + user))
        assert (private.reveal().hex(), public_key(private).hex()) == (case["mask_private"], case["mask_key"])
        commitment = digest("private seed", raw(case["run"]), number, user, raw(case["private_seed"]))
        assert commitment.hex() == case["commitment"]


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


def test_false_shares() -> None:
    for case in load("false_shares")["cases"]:
        joined = shamir.decode_shares(raw("".join(case["shares"])))
        assert joined is not None
        shares = joined.reshape(1, len(case["shares"]), -1)
        holders = np.array(case["holders"], np.int64)
        restored = restore(shares, holders, case["threshold"], lambda _, found, c=case: found.hex() == c["secret"])  # type: ignore[misc]
        assert restored.secrets == [raw(case["secret"])]
        assert holders[restored.false[0]].tolist() == case["false"]


def test_mask_stream() -> None:
    assert {case["bits"] for case in load("mask_stream")["cases"]} == set(WORD_BITS)
    for case in load("mask_stream")["cases"]:
        word, count = Word.of(case["bits"]), len(case["words"])
        words = MaskStream(Secret(raw(case["seed"])), word).words(count, Scratch(word, count))
        assert word.reduce(words.astype(word.accumulator)).tolist() == case["words"]


def test_roster() -> None:
    vector = load("roster")
    for user in vector["users"]:
        entry = enrol(IdentityKey(raw(user["identity_private"])), vector["run"], RunSecret(raw(user["run_secret"])))
        assert entry.as_json().items() <= user.items()
    for case in vector["rosters"]:
        seeded = read_roster({**vector, **case})
        unseeded = Roster(vector["run"], seeded.entries, None, case["group_size"], case["colluding"], case["beacon"])
        assert unseeded.unseeded_digest.hex() == case["unseeded_digest"]
        assert seeded.digest.hex() == case["digest"]
        if case["beacon"]:
            assert unseeded.with_beacon(raw(case["value"])) == seeded
        for number, seed in case["epoch_seeds"].items():
            assert seeded.epoch_seed(int(number)).hex() == seed


def test_groups() -> None:
    for case in load("groups")["cases"]:
        params = Parameters.decode(raw(case["parameters"]))
        seed = params.epoch_seed(case["epoch"], None)
        assert seed.hex() == case["seed"]
        for group, expected in zip(params.draw(seed).groups, case["groups"], strict=True):
            assert group.users.tolist() == expected["users"]
            assert group.users[group.graph.neighbours(0)].tolist() == expected["partners"]


def test_slices() -> None:
    for case in load("slices")["blocks"]:
        assert block_of(case["alpha_q32"]) == (case["part"], case["block"])
    for case in load("slices")["cases"]:
        params = Parameters.decode(raw(case["parameters"]))
        where = params.shape.masked_sum(case["group"], case["round"], raw(case["seed"]), bytes(32)).indices()
        every = np.arange(params.dim)
        assert np.concatenate([every[index] for index in where]).tolist() == case["coordinates"]


def test_gap_sampling() -> None:
    for case in load("gap_sampling")["cases"]:
        probability = int(case["probability"], 16)
        assert probability == (case["alpha_q32"] << 32) // case["degree"]
        table = GapTable.of(probability).cumulative.tolist()
        assert len(table) == case["table_size"]
        assert [*table[:4], table[-1]] == [int(entry, 16) for entry in case["table"]]
        (positions,) = bernoulli_positions([PatternSeed(raw(case["pattern_seed"]))], case["dim"], probability)
        assert positions.tolist() == case["positions"]


def test_quantise() -> None:
    vector = load("quantise")
    for case in vector["fit"]:
        word = Word.of(case["modulus_bits"])
        quantizer = Quantizer.fit(word, case["contributors"], case["clip"])
        assert (quantizer.limit, quantizer.scale) == (case["limit"], case["scale"])
        digits = Digits.fit(word, case["contributors"], case["maxima"])
        assert (digits.digit_bits, list(digits.counts)) == (case["digit_bits"], case["digit_counts"])
        assert digits.write(case["values"]).tolist() == case["digits"]
        assert list(digits.read(case["digits"])) == case["values"]
    for case in vector["lift"]:
        word = Word.of(case["modulus_bits"])
        assert word.lift(np.array(case["words"], word.dtype)).tolist() == case["signed"]


def test_skellam() -> None:
    for case in load("skellam")["cases"]:
        table = SkellamTable.of(case["variance"])
        for k, stated in case["at_most"].items():
            place = int(k) - table.smallest
            assert int(table.high[place]) << 64 | int(table.low[place]) == int(stated, 16)
        stream = KeyStream(NoiseSeed(raw(case["noise_seed"])))
        assert table.draw(stream, len(case["draws"])).tolist() == case["draws"]


def test_parameters() -> None:
    for case in load("parameters")["cases"]:
        params = Parameters.decode(raw(case["bytes"]))
        assert params.encode().hex() == case["bytes"]
        for name, value in case["fields"].items():
            assert _plain(getattr(params, name)) == value
        assert (params.digest.hex(), params.run.hex()) == (case["digest"], case["run"])
        assert min(params.sizes) == case["smallest_group"]
        for name in ("contributors", "holders", "quorum", "accusers"):
            assert getattr(params, name) == case[name]
        shape = params.shape
        assert ([shape.part, shape.block] if isinstance(shape, Sliced) else None) == case["block"]
        assert shape.layout.limit == case["limit"]
        mechanism = params.mechanism
        assert (mechanism.scale if mechanism else params.quantizer.scale) == case["scale"]
        assert ([mechanism.squared_norm, mechanism.variance] if mechanism else None) == case["noise"]
        assert (shape.digits.digit_bits, list(shape.digits.counts)) == (case["digit_bits"], case["digit_counts"])


def test_messages() -> None:
    for case in load("messages")["cases"]:
        data = raw(case["bytes"])
        message = (decode_client_message if "number" in case["fields"] else decode_server_message)(data)
        assert encode(message) == data
        assert [_plain(getattr(message, name)) for name in case["fields"]] == list(case["fields"].values())


def test_packing() -> None:
    assert {case["bits"] for case in load("packing")["cases"]} == set(WORD_BITS)
    for case in load("packing")["cases"]:
        word = Word.of(case["bits"])
        assert bytes(pack(np.array(case["words"], word.dtype), word)).hex() == case["bytes"]
        assert unpack(raw(case["bytes"]), len(case["words"]), word).tolist() == case["words"]


def test_locations() -> None:
    for case in load("locations")["cases"]:
        assert encode_locations(np.array(case["positions"], np.int64), case["dim"]).hex() == case["bytes"]
        assert decode_locations(raw(case["bytes"]), case["dim"]).tolist() == case["positions"]


def _plain(value: Any) -> Any:
    """Return a field as it is written in a vector."""
    return value if isinstance(value, int | float | str) else bytes(value).hex()
