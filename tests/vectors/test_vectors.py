"""The committed vectors are those that the generator makes, and the library computes what they say."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from sparsesecagg.crypto import sealing, shamir
from sparsesecagg.crypto.decoding import restore
from sparsesecagg.crypto.identity import IdentityKey, RunSecret, enrol
from sparsesecagg.crypto.kdf import derive, digest, expand
from sparsesecagg.crypto.keys import KeyAgreement, public_key
from sparsesecagg.crypto.secrets import (
    AgreedSecret,
    PairChain,
    PatternSeed,
    PrivateKey,
    RoundSecret,
    Secret,
    SharedSecret,
)
from sparsesecagg.crypto.stream import MaskStream, Scratch
from sparsesecagg.field import WORD_BITS, Word, pack, unpack
from sparsesecagg.patterns import Slices
from sparsesecagg.patterns.gaps import GapTable, bernoulli_positions
from sparsesecagg.patterns.jury import jury_size
from sparsesecagg.patterns.pairwise import edge_probability
from sparsesecagg.protocol import Parameters
from sparsesecagg.protocol.draw import Statement, jury, verify_draw
from sparsesecagg.protocol.draw_messages import DrawProof, DrawRequest, decode_draw, encode_draw
from sparsesecagg.protocol.juror import JurorState, answer_draw
from sparsesecagg.protocol.locations import decode_locations, encode_locations
from sparsesecagg.protocol.masking import pair_seeds, private_mask_seed
from sparsesecagg.protocol.messages import decode_client_message, decode_server_message, decode_users, encode
from sparsesecagg.protocol.tags import CONFIRM_TAG, ORDER_TAG
from sparsesecagg.rounding import Digits, Quantizer
from vector_replay import FOLDER, ROOT, ReplayedRun, identities_of, load, names, read_roster

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
def test_the_total_is_the_plain_sum_of_what_the_opened_survivors_masked(name: str) -> None:
    """Read off the file, without any protocol."""
    replayed = ReplayedRun(name)
    committee_of = _committees(replayed, 0)
    uploads: dict[int, dict[str, Any]] = {}
    for step in replayed.steps:
        if "epoch" in step:
            committee_of = _committees(replayed, step["epoch"] - 1)
        elif "begin" in step:
            uploads = {}
        elif step.get("stage") == "UPLOAD" and "from" in step:
            uploads[step["from"]] = step
        elif "result" in step:
            result, total = step["result"], np.zeros(replayed.params.dim, np.int64)
            for user in result["survivors"]:
                if committee_of[user] not in result["lost"]:
                    for each in uploads[user]["masked"]:
                        where = each.get("coordinates") or range(*replayed.params.slices.bounds(each.get("slice", 0)))
                        total[list(where)] += each["integers"]
            assert total.tolist() == result["total"]


def _committees(replayed: ReplayedRun, epoch: int) -> dict[int, int]:
    groups = [members for pod in replayed.vector["contexts"]["epochs"][epoch] for members in pod["committees"]]
    return {user: number for number, members in enumerate(groups) for user in members}


def test_the_runs_cover_patterns_words_stages_and_losses() -> None:
    vectors = [load(name) for name in RUNS]
    fields = [vector["parameters"]["fields"] for vector in vectors]
    steps = [step for vector in vectors for step in vector["steps"]]
    assert {field["pattern"] for field in fields} == {"full", "pairwise", "committee"}
    assert {5, 6, 8, 12, 16, 24, 32} <= {field["modulus_bits"] for field in fields}
    assert {field["confirm"] for field in fields} == {True, False}
    assert {any(raw(field["roster_digest"])) for field in fields} == {True, False}
    assert max(field["pods"] for field in fields) > 1
    assert max(field["served"] for field in fields) > 1
    assert {step["stage"] for step in steps if "from" in step} == {
        "ADVERTISE_KEYS",
        "DRAW",
        "SHARE_KEYS",
        "UPLOAD",
        "CONFIRM",
        "UNMASK",
    }
    results = [step["result"] for step in steps if "result" in step]
    assert any(result["lost"] for result in results)
    assert any(result["false_shares"] for result in results)
    assert any(result["weight_per_slice"] for result in results)


# Building blocks


def test_digest_and_derive() -> None:
    vector = load("digest_and_derive")
    for case in vector["digest"]:
        assert digest(case["label"], *map(raw, case["parts"])).hex() == case["digest"]
    for case in vector["derive"]:
        made = derive(raw(case["secret"]), case["label"], raw(case["context"]), raw(case["names"]), case["length"])
        assert made.hex() == case["derived"]
    for case in vector["expand"]:
        assert expand(raw(case["key"]), case["label"], raw(case["data"])).hex() == case["expanded"]


def test_x25519_agreement() -> None:
    for case in load("x25519_agreement")["cases"]:
        mine, theirs = PrivateKey(raw(case["private"])), PrivateKey(raw(case["peer_private"]))
        assert public_key(mine).hex() == case["public"]
        assert public_key(theirs).hex() == case["peer_public"]
        assert KeyAgreement(mine).with_peer(public_key(theirs)).reveal().hex() == case["agreed"]
        assert KeyAgreement(theirs).with_peer(public_key(mine)).reveal().hex() == case["agreed"]


def test_pair_chains() -> None:
    for case in load("pair_chains")["cases"]:
        who = case["sender"], case["receiver"]
        chain = sealing.pair_chain(raw(case["agreed"]), raw(case["epoch_digest"]), *who)
        assert chain == sealing.pair_chain(raw(case["agreed"]), raw(case["epoch_digest"]), *reversed(who))
        assert chain.reveal().hex() == case["first_chain"]
        for _ in range(case["rounds_later"]):
            chain = sealing.next_chain(chain)
        assert chain == PairChain(raw(case["chain"]))
        secret = sealing.round_secret(chain)
        assert secret == RoundSecret(raw(case["round_secret"]))
        assert sealing.seal(secret, *who, raw(case["plain"])).hex() == case["sealed"]
        assert sealing.unseal(secret, *who, raw(case["sealed"])) == raw(case["plain"])
        assert sealing.tag(secret, ORDER_TAG, *who, raw(case["statement"])).hex() == case["order_tag"]
        assert sealing.tag(secret, CONFIRM_TAG, *who, raw(case["statement"])).hex() == case["confirm_tag"]


def test_seeds_of_masks() -> None:
    vector = load("packages")
    for pair in vector["pair_masks"]:
        for one, other in (pair["users"], reversed(pair["users"])):
            made = pair_seeds(AgreedSecret(raw(pair["agreed"])), raw(pair["order_digest"]), one, other)
            assert [seed.reveal().hex() for seed in made] == [pair["mask_seed"], pair["pattern_seed"]]
    for case in vector["private_masks"]:
        seed = private_mask_seed(SharedSecret(raw(case["private_seed"])), raw(case["order_digest"]), case["user"])
        assert seed.reveal().hex() == case["mask_seed"]


def test_heads() -> None:
    """Written out: heads of packages in whole runs come from `deal`."""
    for case in load("packages")["heads"]:
        number, user = int(case["round"]).to_bytes(8, "little"), case["user"].to_bytes(4, "little")
        private = PrivateKey(derive(raw(case["mask_secret"]), "mask key", raw(case["run"]), number + user))
        commitment = digest("private seed", raw(case["run"]), number, user, raw(case["private_seed"]))
        assert (private.reveal().hex(), (public_key(private) + commitment).hex()) == (
            case["mask_private"],
            case["head"],
        )


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
    assert read_roster(vector["run"], vector["users"]).digest.hex() == vector["digest"]
    for user in vector["users"]:
        entry = enrol(IdentityKey(raw(user["identity_private"])), vector["run"], RunSecret(raw(user["run_secret"])))
        assert entry.as_json().items() <= user.items()


def test_jury() -> None:
    vector = load("jury")
    for case in vector["sizes"]:
        assert jury_size(case["clients"], case["colluders"]) == case["size"]
    for case in vector["juries"]:
        made = jury(raw(case["roster_digest"]), case["draw"], case["clients"], case["colluders"])
        assert list(made) == case["jury"]


def test_draw() -> None:
    people = identities_of(load("roster"))
    roster = people[0].roster
    for case in load("draw")["cases"]:
        params, request = Parameters.decode(raw(case["parameters"])), decode_draw(raw(case["request"]))
        assert isinstance(request, DrawRequest)
        assert Statement.of(request, roster, params).digest.hex() == case["statement"]
        named = decode_users(request.named, len(people)).tolist()
        assert [people[user].reveal(case["draw"]).hex() for user in named] == case["nonces"]
        answers = [answer_draw(people[user], params, JurorState(), request)[1] for user in named]
        assert [answer.hex() for answer in answers] == case["reveals"]
        proof = decode_draw(raw(case["proof"]))
        assert isinstance(proof, DrawProof)
        assert verify_draw(roster, params, proof).seed.hex() == case["seed"]


def test_groups() -> None:
    for case in load("groups")["cases"]:
        params = Parameters.decode(raw(case["parameters"]))
        excluded = frozenset(case["excluded"])
        structure = params.structure.among(params.clients - len(excluded)) if excluded else params.structure
        groups = params.groups(raw(case["seed"]), structure, excluded)
        for pod, expected in zip(groups.pods, case["pods"], strict=True):
            assert pod.users.tolist() == expected["users"]
            assert [pod.users[members].tolist() for members in pod.committees] == expected["committees"]
            assert pod.users[pod.graph.neighbours(0)].tolist() == expected["partners"]


def test_slices() -> None:
    for case in load("slices")["cases"]:
        slices = Slices(case["dim"], case["committees"], case["served"])
        assert slices.length == case["length"]
        assert [list(slices.bounds(number)) for number in range(case["committees"])] == case["bounds"]
        for each in case["sent"]:
            assert slices.of(each["committee"], each["round"]) == each["slices"]


def test_gap_sampling() -> None:
    for case in load("gap_sampling")["cases"]:
        probability = int(case["probability"], 16)
        assert probability == edge_probability(case["alpha_q32"], case["degree"])
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
        assert digits.read(np.array(case["digits"], np.int64)).tolist() == case["values"]
    for case in vector["lift"]:
        word = Word.of(case["modulus_bits"])
        assert word.lift(np.array(case["words"], word.dtype)).tolist() == case["signed"]


def test_parameters() -> None:
    for case in load("parameters")["cases"]:
        params = Parameters.decode(raw(case["bytes"]))
        assert params.encode().hex() == case["bytes"]
        for name, value in case["fields"].items():
            assert _plain(getattr(params, name)) == value
        assert (params.digest.hex(), params.run.hex(), params.sizes) == (case["digest"], case["run"], case["sizes"])
        made = (params.holders, params.contributors, params.slices.length, params.width)
        assert made == (case["holders"], case["contributors"], case["length"], case["width"])
        assert [params.threshold_of(sum(sizes)) for sizes in params.sizes] == case["thresholds"]
        assert [[params.survivors_of(size) for size in sizes] for sizes in params.sizes] == case["min_survivors"]


def test_messages() -> None:
    for case in load("messages")["cases"]:
        data, made = raw(case["bytes"]), []
        if case["name"].startswith("draw"):
            drawn = decode_draw(data)
            assert encode_draw(drawn) == data
            made = [_plain(getattr(drawn, name)) for name in case["fields"]]
        else:
            message = (decode_client_message if "number" in case["fields"] else decode_server_message)(data)
            assert encode(message) == data
            made = [_plain(getattr(message, name)) for name in case["fields"]]
        assert made == list(case["fields"].values())


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
