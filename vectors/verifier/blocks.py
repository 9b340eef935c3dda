"""Files of building blocks: input and output side by side."""

from collections.abc import Callable, Iterator, Mapping

from vectors.verifier import groups, keys, locations, messages, noise, parameters, patterns, sharing, slices, words
from vectors.verifier.comparing import Case, Check, Mismatch, expect, take, unhex
from vectors.verifier.hashing import derive, digest, expand, one_step


def check_digest(case: Case) -> None:
    """digest(label, parts…)."""
    label, parts, stated = take(case, "label parts digest")
    expect("digest", stated, digest(label, *map(unhex, parts)).hex())


def check_derive(case: Case) -> None:
    """derive(secret, label, context, names, length)."""
    secret, label, context, names, length, stated = take(case, "secret label context names length derived")
    expect("derived", stated, derive(unhex(secret), label, unhex(context), unhex(names), length).hex())


def check_one_step(case: Case) -> None:
    """one_step(secret, label, context, names)."""
    secret, label, context, names, stated = take(case, "secret label context names derived")
    expect("derived", stated, one_step(unhex(secret), label, unhex(context), unhex(names)).hex())


def check_expand(case: Case) -> None:
    """expand(key, label)."""
    key, label, stated = take(case, "key label expanded")
    expect("expanded", stated, expand(unhex(key), label).hex())


def check_agreement(case: Case) -> None:
    """X25519, from both sides."""
    private, public, peer_private, peer_public, agreed = take(case, "private public peer_private peer_public agreed")
    expect("public", public, keys.public_key(unhex(private)).hex())
    expect("peer_public", peer_public, keys.public_key(unhex(peer_private)).hex())
    expect("agreed", agreed, keys.agree(unhex(private), unhex(peer_public)).hex())
    expect("agreed by the peer", agreed, keys.agree(unhex(peer_private), unhex(public)).hex())


def check_package(case: Case) -> None:
    """The mask key and the commitment of a key package."""
    run, number, user, mask_secret, private_seed, private, mask_key, commitment = take(
        case, "run round user mask_secret private_seed mask_private mask_key commitment"
    )
    found = keys.mask_private(unhex(mask_secret), unhex(run), int(number), user)
    expect("mask_private", private, found.hex())
    expect("mask_key", mask_key, keys.public_key(found).hex())
    made = keys.seed_commitment(unhex(private_seed), unhex(run), int(number), user)
    expect("commitment", commitment, made.hex())


def check_pair_masks(case: Case) -> None:
    """The two seeds of a pair."""
    agreed, context, users, mask_seed, pattern_seed = take(case, "agreed header_digest users mask_seed pattern_seed")
    found = keys.pair_seeds(unhex(agreed), unhex(context), *users)
    expect("seeds", (mask_seed, pattern_seed), (found[0].hex(), found[1].hex()))


def check_private_masks(case: Case) -> None:
    """The seed of a private mask."""
    private_seed, context, user, mask_seed = take(case, "private_seed header_digest user mask_seed")
    expect("mask_seed", mask_seed, keys.private_mask_seed(unhex(private_seed), unhex(context), user).hex())


def check_ratchet(case: Case) -> None:
    """A ratchet, a secret of a round, a sealed pair of shares, a tag."""
    agreed, context, sender, receiver, first, rounds, ratchet, secret, plain, sealed, header_digest, tag = take(
        case,
        "agreed epoch_digest sender receiver first_ratchet rounds_later ratchet round_secret plain sealed "
        "header_digest tag",
    )
    expect("first_ratchet", first, keys.first_ratchet(unhex(agreed), unhex(context), sender, receiver).hex())
    expect("ratchet", ratchet, keys.ratchet_after(unhex(first), rounds).hex())
    expect("round_secret", secret, keys.round_secret(unhex(ratchet)).hex())
    expect("sealed", sealed, keys.seal(unhex(secret), sender, receiver, unhex(plain)).hex())
    expect("plain", plain, keys.unseal(unhex(secret), sender, receiver, unhex(sealed)).hex())
    expect("tag", tag, keys.header_tag(unhex(secret), sender, receiver, unhex(header_digest)).hex())


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


def check_false_shares(case: Case) -> None:
    """Shares of which some are false."""
    holders, threshold, shares, secret, false = take(case, "holders threshold shares secret false")
    found, liars = sharing.restore(dict(zip(holders, map(unhex, shares), strict=True)), threshold)
    expect("secret", secret, found.hex())
    expect("false", false, sorted(liars))


def check_mask_stream(case: Case) -> None:
    """The first words of a mask stream."""
    bits, seed, stated = take(case, "bits seed words")
    stream = words.MaskStream(unhex(seed), bits)
    expect("words", stated, [stream.word() for _ in stated])


def check_users(content: Case) -> None:
    """The users of a roster with their private keys; in the file `roster` also with what is signed."""
    run = content["run"]
    for user in content["users"]:
        identity_private, run_secret, identity, run_key, signature, signed = take(
            user, "identity_private run_secret identity run_key signature", "signed"
        )
        expect("identity", identity, keys.signing_public(unhex(identity_private)).hex())
        expect("run_key", run_key, keys.public_key(keys.run_private(unhex(run_secret), run)).hex())
        statement = keys.signed_enrolment(run, unhex(run_key))
        expect("signature", signature, keys.sign(unhex(identity_private), statement).hex())
        expect("signed", signed, statement.hex() if "signed" in user else None)


def check_roster(document: Case, case: Case) -> None:
    """The digests of a roster, and the seeds that follow from it."""
    names = "group_size colluding beacon unseeded_digest seed digest epoch_seeds"
    *_, unseeded, seed, stated, epoch_seeds, value = take(case, names, "value")
    roster = keys.roster_of({**document, **case})
    keys.check_roster(roster)
    expect("unseeded_digest", unseeded, roster.unseeded_digest.hex())
    expect("digest", stated, roster.digest.hex())
    expect("a beacon's value", value is not None, roster.beacon != "")
    if value is not None:
        expect("seed", seed, roster.seed_from_beacon(unhex(value)).hex())
    expect("epoch_seeds", epoch_seeds, {number: roster.epoch_seed(int(number)).hex() for number in epoch_seeds})


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


def check_groups(case: Case) -> None:
    """The seed of an epoch, its groups and partners."""
    encoded, epoch, seed, stated = take(case, "parameters epoch seed groups")
    p = parameters.decode(unhex(encoded))
    expect("seed", seed, groups.epoch_seed(p, epoch, None).hex())
    found = groups.draw_groups(p, unhex(seed))
    expect("number of groups", len(stated), len(found))
    for each, group in zip(stated, found, strict=True):
        users, partners = take(each, "users partners")
        expect("users", users, group.users)
        expect("partners", partners, group.partners[group.users[0]])


def check_block(case: Case) -> None:
    """Which part of how large a block is sent."""
    alpha_q32, part, block = take(case, "alpha_q32 part block")
    expect("part and block", (part, block), slices.block_of(alpha_q32))


def check_slice(case: Case) -> None:
    """What a group sends in a round."""
    encoded, seed, group, number, coordinates = take(case, "parameters seed group round coordinates")
    p = parameters.decode(unhex(encoded))
    expect("coordinates", coordinates, slices.coordinates(p.alpha_q32, p.dim, p.slices, unhex(seed), group, number))


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


def check_skellam(case: Case) -> None:
    """Probabilities and draws of noise."""
    variance, at_most, seed, draws = take(case, "variance at_most noise_seed draws")
    found = noise.distribution(variance)
    for k, stated in at_most.items():
        close = abs(found[int(k)] - int(stated, 16)) <= noise.TOLERANCE
        expect(f"at most {k}, {stated} being near {found[int(k)]:#034x}", True, close)
    expect("draws", draws, noise.draws(variance, unhex(seed), len(draws)))


def check_parameters(case: Case) -> None:
    """Fields, canonical bytes, digest and what follows from them."""
    derived = "smallest_group contributors holders quorum accusers block limit scale noise digit_bits digit_counts"
    fields, data, stated_digest, run, *_ = take(case, f"fields bytes digest run {derived}")
    p = parameters.from_json(fields)
    expect("bytes", data, p.canonical.hex())
    expect("decoded", parameters.decode(unhex(data)), p)
    expect("digest and run", (stated_digest, run), (p.digest.hex(), p.run.hex()))
    for name in derived.split():
        found = getattr(p, name)
        expect(name, case[name], list(found) if isinstance(found, tuple) else found)


def check_message(case: Case) -> None:
    """A message of each kind, written and read."""
    name, fields, data = take(case, "name fields bytes")
    contents = {key: unhex(value) if isinstance(value, str) else value for key, value in fields.items()}
    expect("bytes", data, messages.encode(name, *contents.values()).hex())
    names = messages.FROM_USERS if name in messages.FROM_USERS else messages.FROM_SERVER
    found = messages.decode(unhex(data), names)
    read = {"round_number": found.round_number, "binding": found.binding, **found.fields}
    expect("decoded", (name, list(contents.items())), (found.name, list(read.items())))


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
    "digest_and_derive": {
        "digest": check_digest,
        "derive": check_derive,
        "one_step": check_one_step,
        "expand": check_expand,
    },
    "x25519_agreement": {"cases": check_agreement},
    "ratchets": {"cases": check_ratchet},
    "packages": {"packages": check_package, "pair_masks": check_pair_masks, "private_masks": check_private_masks},
    "shamir": {"cases": check_shamir},
    "false_shares": {"cases": check_false_shares},
    "mask_stream": {"cases": check_mask_stream},
    "roster": {},
    "groups": {"cases": check_groups},
    "slices": {"blocks": check_block, "cases": check_slice},
    "gap_sampling": {"cases": check_gap_sampling},
    "quantise": {"fit": check_fit, "lift": check_lift},
    "skellam": {"cases": check_skellam},
    "parameters": {"cases": check_parameters},
    "messages": {"cases": check_message},
    "packing": {"cases": check_packing},
    "locations": {"cases": check_locations},
}


def checks_of_blocks(name: str, documents: Mapping[str, Case]) -> Iterator[Check]:
    """Return the checks of a file of building blocks."""
    document = documents[name]
    if name == "roster":
        _, users, rosters = take(document, "run users rosters")
        if any("signed" not in user for user in users):
            raise Mismatch("a roster without what is signed")
        yield "users", lambda: check_users(document)
        for place, case in enumerate(rosters):
            yield f"roster {place}", lambda case=case: check_roster(document, case)  # type: ignore[misc]
        return
    sections = BUILDING_BLOCKS[name]
    for section, cases in zip(sections, take(document, " ".join(sections)), strict=True):
        for place, case in enumerate(cases):
            check = sections[section]
            yield f"{section} {place}", lambda check=check, case=case: check(case)  # type: ignore[misc]
