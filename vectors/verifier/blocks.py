"""Files of building blocks: input and output side by side (17)."""

from collections.abc import Callable, Iterator

from vectors.verifier import graphs, keys, locations, messages, parameters, patterns, sharing, words
from vectors.verifier.comparing import Case, Check, Mismatch, expect, take, unhex
from vectors.verifier.hashing import derive, digest


def check_digest(case: Case) -> None:
    """digest(label, parts…)."""
    label, parts, stated = take(case, "label parts digest")
    expect("digest", stated, digest(label, *map(unhex, parts)).hex())


def check_derive(case: Case) -> None:
    """derive(secret, label, context, names, length)."""
    secret, label, context, names, length, stated = take(case, "secret label context names length derived")
    expect("derived", stated, derive(unhex(secret), label, unhex(context), unhex(names), length).hex())


def check_agreement(case: Case) -> None:
    """X25519, from both sides."""
    private, public, peer_private, peer_public, agreed = take(case, "private public peer_private peer_public agreed")
    expect("public", public, keys.public_key(unhex(private)).hex())
    expect("peer_public", peer_public, keys.public_key(unhex(peer_private)).hex())
    expect("agreed", agreed, keys.agree(unhex(private), unhex(peer_public)).hex())
    expect("agreed by the peer", agreed, keys.agree(unhex(peer_private), unhex(public)).hex())


def check_pair_seeds(case: Case) -> None:
    """The two seeds of a pair."""
    agreed, context, users, mask_seed, pattern_seed = take(case, "agreed context users mask_seed pattern_seed")
    found = keys.pair_seeds(unhex(agreed), unhex(context), *users)
    expect("seeds", (mask_seed, pattern_seed), (found[0].hex(), found[1].hex()))


def check_private_mask(case: Case) -> None:
    """The seed of a private mask."""
    private_seed, context, user, mask_seed = take(case, "private_seed context user mask_seed")
    expect("mask_seed", mask_seed, keys.private_mask_seed(unhex(private_seed), unhex(context), user).hex())


def check_nonce_commitment(case: Case) -> None:
    """The commitment to a nonce."""
    sealing_key, mask_key, nonce, commitment = take(case, "sealing_key mask_key nonce commitment")
    expect("commitment", commitment, keys.nonce_commitment(unhex(sealing_key), unhex(mask_key), unhex(nonce)).hex())


def check_seed_commitment(case: Case) -> None:
    """The commitment to a private seed."""
    parameters_digest, user, private_seed, commitment = take(case, "parameters_digest user private_seed commitment")
    found = keys.seed_commitment(unhex(parameters_digest), user, unhex(private_seed))
    expect("commitment", commitment, found.hex())


def check_shamir(case: Case) -> None:
    """Split, then combine the first secret again."""
    secrets, holders, threshold, seed, shares, combine = take(case, "secrets holders threshold seed shares combine")
    found = sharing.split([unhex(secret) for secret in secrets], holders, threshold, unhex(seed))
    expect("shares", shares, [found[holder].hex() for holder in holders])
    for subset in combine:
        chosen, weights, secret = take(subset, "holders lagrange_at_zero secret")
        expect("number of holders", len(chosen), threshold)
        expect("lagrange_at_zero", weights, sharing.lagrange_at_zero(chosen))
        expect("the first secret", secret, secrets[0])
        first = [found[holder][: sharing.SHARE] for holder in chosen]
        expect("secret", secret, sharing.combine(chosen, first).hex())


def check_sealing(case: Case) -> None:
    """Seal and open a pair of shares; the tag of a confirmation."""
    agreed, context, number, sender, receiver = (
        case[name] for name in ("agreed", "context", "round_number", "sender", "receiver")
    )
    *_, key, plain, sealed, confirm_key, statement, tag = take(
        case, "agreed context round_number sender receiver sealing_key plain sealed confirm_key statement tag"
    )
    expect("sealing_key", key, keys.sealing_key(unhex(agreed), unhex(context), sender, receiver).hex())
    expect("sealed", sealed, keys.seal(unhex(key), int(number), sender, receiver, unhex(plain)).hex())
    expect("plain", plain, keys.unseal(unhex(key), int(number), sender, receiver, unhex(sealed)).hex())
    expect("confirm_key", confirm_key, keys.confirm_key(unhex(agreed), unhex(context), sender, receiver).hex())
    expect("tag", tag, keys.confirmation_tag(unhex(confirm_key), unhex(statement)).hex())


def check_mask_stream(case: Case) -> None:
    """The first words of a mask stream."""
    bits, seed, stated = take(case, "bits seed words")
    stream = words.MaskStream(unhex(seed), bits)
    expect("words", stated, [stream.word() for _ in stated])


def check_roster(case: Case) -> None:
    """A roster with its private keys; in the file `roster` also with what is signed."""
    run, users, stated = take(case, "run users", "digest")
    roster = []
    for user in users:
        identity_private, run_secret, identity, run_key, draw_key, chain_tip, signature, signed = take(
            user, "identity_private run_secret identity run_key draw_key chain_tip signature", "signed"
        )
        made = keys.run_keys_of(unhex(run_secret), run)
        expect("identity", identity, keys.identity_of(unhex(identity_private)).hex())
        expect("run_key", run_key, keys.public_key(made.run_private).hex())
        expect("draw_key", draw_key, keys.identity_of(made.draw_private).hex())
        expect("chain_tip", chain_tip, made.chain_tip.hex())
        public = unhex(run_key), unhex(draw_key), unhex(chain_tip)
        statement = keys.signed_enrolment(run, *public)
        expect("signature", signature, keys.sign(unhex(identity_private), statement).hex())
        expect("signed", signed, statement.hex() if "signed" in user else None)
        roster.append(keys.RosterEntry(unhex(identity), *public, unhex(signature)))
    keys.check_roster(run, roster)
    expect("digest", stated, keys.roster_digest(run, roster).hex() if "digest" in case else None)


def check_gap_sampling(case: Case) -> None:
    """The ones of a pair's pattern, and the table that they are drawn with."""
    alpha_q32, degree, stated, size, entries, seed, dim, positions = take(
        case, "alpha_q32 degree probability table_size table pattern_seed dim positions"
    )
    probability = patterns.probability(alpha_q32, degree)
    expect("probability", stated, f"{probability:#018x}")
    table = patterns.gap_table(probability)
    expect("table_size", size, len(table))
    expect("table", entries, [f"{entry:#018x}" for entry in (*table[:4], table[-1])])
    expect("positions", positions, patterns.sample_gaps(probability, unhex(seed), dim))


def check_share_graph(case: Case) -> None:
    """A share graph; the seed stands for the directory digest."""
    seed, users, neighbours, circle, graph = take(case, "seed users neighbours circle graph")
    expect("circle", circle, graphs.share_circle(users, unhex(seed)))
    found = graphs.share_graph(users, unhex(seed), neighbours)
    expect("graph", graph, [{"user": user, "neighbours": found[user]} for user in users])


def layout(**fields: object) -> parameters.Parameters:
    """Return parameters in which only these fields matter."""
    filler: Case = dict.fromkeys(parameters.Parameters.__dataclass_fields__, 0)
    return parameters.Parameters(**(filler | fields))


def check_committees(case: Case) -> None:
    """The committees of all blocks, and the blocks and peers of some users."""
    clients, dim, alpha_q32, neighbours, stripes = (
        case[name] for name in ("clients", "dim", "alpha_q32", "neighbours", "stripes")
    )
    *_, members, context, fraction, contributors, blocks, length, committees, users = take(
        case,
        "clients dim alpha_q32 neighbours stripes members context fraction contributors blocks length committees users",
    )
    p = layout(
        clients=clients, dim=dim, alpha_q32=alpha_q32, neighbours=neighbours, stripes=stripes, pattern="committee"
    )
    expect("sizes", (tuple(fraction), contributors, blocks, length), (p.fraction, p.contributors, p.blocks, p.length))
    pattern = patterns.Pattern(p, unhex(context), members, {})
    expect("committees", committees, pattern.senders)
    for stated in users:
        user, selected, peers = take(stated, "user selected peers")
        expect("selected", selected, pattern.public_blocks(user))
        found = [{"peer": q, "blocks": pattern.blocks_of_pair(user, q, b"")} for q in pattern.peers(user)]
        expect("peers", peers, found)


def check_full_layout(case: Case) -> None:
    """How `full` cuts the coordinates."""
    dim, blocks, length = take(case, "dim blocks length")
    p = layout(dim=dim, pattern="full")
    expect("layout", (blocks, length), (p.blocks, p.length))


def check_fit(case: Case) -> None:
    """Limit, scale and digits."""
    bits, contributors, clip, limit, scale, maxima, e, counts, values, digits = take(
        case, "modulus_bits contributors clip limit scale maxima digit_bits digit_counts values digits"
    )
    expect("limit", limit, words.limit(bits, contributors))
    expect("scale", scale, words.limit(bits, contributors) / clip)
    expect("digit_bits", e, words.digit_bits(bits, contributors))
    expect("digit_counts", counts, [words.digit_count(maximum, e) for maximum in maxima])
    found = [digit for v, count in zip(values, counts, strict=True) for digit in words.digits_of(v, count, e)]
    expect("digits", digits, found)


def check_lift(case: Case) -> None:
    """Words as signed integers, and back."""
    bits, unsigned, stated = take(case, "modulus_bits words signed")
    expect("signed", stated, [words.signed(word, bits) for word in unsigned])
    expect("words", unsigned, [number % words.modulus(bits) for number in stated])


def check_parameters(case: Case) -> None:
    """Fields, canonical bytes, digest and what follows from them."""
    fields, data, stated_digest, view = (case[name] for name in ("fields", "bytes", "digest", "view"))
    derived = "authenticated holders contributors blocks length width limit scale digit_bits digit_counts"
    take(case, "fields bytes digest view " + derived)
    p = parameters.from_json(fields)
    expect("bytes", data, p.canonical.hex())
    expect("decoded", parameters.decode(unhex(data)), p)
    expect("digest and view", (stated_digest, view), (p.digest.hex(), p.view.hex()))
    for name in derived.split():
        found = getattr(p, name)
        expect(name, case[name], list(found) if isinstance(found, tuple) else found)


def check_message(case: Case) -> None:
    """A message of each kind, written and read."""
    name, fields, data = take(case, "tag fields bytes")
    contents = {key: unhex(value) for key, value in fields.items() if key != "round_number"}
    expect("bytes", data, messages.encode(name, fields["round_number"], *contents.values()).hex())
    names = messages.FROM_USERS if name in messages.FROM_USERS else messages.FROM_SERVER
    found = messages.decode(unhex(data), names)
    stated = (name, fields["round_number"], [*contents.items()])
    expect("decoded", stated, (found.name, found.round_number, [("view", found.view), *found.fields.items()]))


def check_packing(case: Case) -> None:
    """Words packed and unpacked."""
    bits, unpacked, data = take(case, "bits words bytes")
    expect("bytes", data, words.pack(unpacked, bits).hex())
    expect("words", unpacked, words.unpack(unhex(data), len(unpacked), bits))


def check_locations(case: Case) -> None:
    """Positions coded and read."""
    dim, positions, data = take(case, "dim positions bytes")
    expect("bytes", data, locations.encode(positions, dim).hex())
    expect("positions", positions, locations.decode(unhex(data), dim))


# Per file, how the cases below each of its keys are checked. A roster is one case with all keys of its file.
BUILDING_BLOCKS: dict[str, dict[str, Callable[[Case], None]]] = {
    "digest_and_derive": {"digest": check_digest, "derive": check_derive},
    "x25519_agreement": {"cases": check_agreement},
    "seeds_and_commitments": {
        "pair": check_pair_seeds,
        "private_mask": check_private_mask,
        "nonce_commitment": check_nonce_commitment,
        "seed_commitment": check_seed_commitment,
    },
    "shamir": {"cases": check_shamir},
    "sealing": {"cases": check_sealing},
    "mask_stream": {"cases": check_mask_stream},
    "roster": {},
    "gap_sampling": {"cases": check_gap_sampling},
    "share_graph": {"cases": check_share_graph},
    "committees": {"cases": check_committees},
    "full_layout": {"cases": check_full_layout},
    "quantise": {"fit": check_fit, "lift": check_lift},
    "parameters": {"cases": check_parameters},
    "messages": {"cases": check_message},
    "packing": {"cases": check_packing},
    "locations": {"cases": check_locations},
}


def checks_of_blocks(name: str, document: Case) -> Iterator[Check]:
    """Return the checks of a file of building blocks."""
    if name == "roster":
        if "digest" not in document or any("signed" not in user for user in document["users"]):
            raise Mismatch("a roster without its digest or without what is signed")
        yield name, lambda: check_roster(document)
        return
    sections = BUILDING_BLOCKS[name]
    for section, cases in zip(sections, take(document, " ".join(sections)), strict=True):
        for place, case in enumerate(cases if isinstance(cases, list) else [cases]):
            check = sections[section]
            yield f"{section} {place}", lambda check=check, case=case: check(case)  # type: ignore[misc]
