"""Files of building blocks: input and output side by side (22)."""

from collections.abc import Callable, Iterator, Mapping

from vectors.verifier import draws, groups, keys, locations, messages, parameters, patterns, sharing, words
from vectors.verifier.comparing import Case, Check, Mismatch, expect, take, unhex
from vectors.verifier.draws import roster_of
from vectors.verifier.hashing import derive, digest, expand, set_of_users


def check_digest(case: Case) -> None:
    """digest(label, parts…)."""
    label, parts, stated = take(case, "label parts digest")
    expect("digest", stated, digest(label, *map(unhex, parts)).hex())


def check_derive(case: Case) -> None:
    """derive(secret, label, context, names, length)."""
    secret, label, context, names, length, stated = take(case, "secret label context names length derived")
    expect("derived", stated, derive(unhex(secret), label, unhex(context), unhex(names), length).hex())


def check_expand(case: Case) -> None:
    """expand(key, label, data)."""
    key, label, data, stated = take(case, "key label data expanded")
    expect("expanded", stated, expand(unhex(key), label, unhex(data)).hex())


def check_agreement(case: Case) -> None:
    """X25519, from both sides."""
    private, public, peer_private, peer_public, agreed = take(case, "private public peer_private peer_public agreed")
    expect("public", public, keys.public_key(unhex(private)).hex())
    expect("peer_public", peer_public, keys.public_key(unhex(peer_private)).hex())
    expect("agreed", agreed, keys.agree(unhex(private), unhex(peer_public)).hex())
    expect("agreed by the peer", agreed, keys.agree(unhex(peer_private), unhex(public)).hex())


def check_head(case: Case) -> None:
    """The head of a package."""
    run, number, user, mask_secret, private_seed, private, head = take(
        case, "run round user mask_secret private_seed mask_private head"
    )
    found = keys.mask_private(unhex(mask_secret), unhex(run), int(number), user)
    expect("mask_private", private, found.hex())
    made = keys.head(unhex(mask_secret), unhex(private_seed), unhex(run), int(number), user)
    expect("head", head, made.hex())


def check_pair_masks(case: Case) -> None:
    """The two seeds of a pair."""
    agreed, context, users, mask_seed, pattern_seed = take(case, "agreed order_digest users mask_seed pattern_seed")
    found = keys.pair_seeds(unhex(agreed), unhex(context), *users)
    expect("seeds", (mask_seed, pattern_seed), (found[0].hex(), found[1].hex()))


def check_private_masks(case: Case) -> None:
    """The seed of a private mask."""
    private_seed, context, user, mask_seed = take(case, "private_seed order_digest user mask_seed")
    expect("mask_seed", mask_seed, keys.private_mask_seed(unhex(private_seed), unhex(context), user).hex())


def check_pair_chain(case: Case) -> None:
    """A chain, a secret of a round, a sealed pair of shares, tags."""
    agreed, context, sender, receiver, first, rounds, chain, secret, plain, sealed, statement, order, confirm = take(
        case,
        "agreed epoch_digest sender receiver first_chain rounds_later chain round_secret plain sealed statement "
        "order_tag confirm_tag",
    )
    expect("first_chain", first, keys.first_chain(unhex(agreed), unhex(context), sender, receiver).hex())
    expect("chain", chain, keys.chain_after(unhex(first), rounds).hex())
    expect("round_secret", secret, keys.round_secret(unhex(chain)).hex())
    expect("sealed", sealed, keys.seal(unhex(secret), sender, receiver, unhex(plain)).hex())
    expect("plain", plain, keys.unseal(unhex(secret), sender, receiver, unhex(sealed)).hex())
    expect("order_tag", order, keys.order_tag(unhex(secret), sender, receiver, unhex(statement)).hex())
    expect("confirm_tag", confirm, keys.confirm_tag(unhex(secret), sender, receiver, unhex(statement)).hex())


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


def check_roster(case: Case) -> None:
    """A roster with its private keys; in the file `roster` also with what is signed."""
    run, users, stated = take(case, "run users", "digest")
    roster = []
    for user in users:
        identity_private, run_secret, identity, run_key, draw_key, chain_tip, signature, signed = take(
            user, "identity_private run_secret identity run_key draw_key chain_tip signature", "signed"
        )
        made = keys.run_keys_of(unhex(run_secret), run)
        expect("identity", identity, keys.signing_public(unhex(identity_private)).hex())
        expect("run_key", run_key, keys.public_key(made.run_private).hex())
        expect("draw_key", draw_key, keys.signing_public(made.draw_private).hex())
        expect("chain_tip", chain_tip, made.nonces[0].hex())
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


def check_jury_size(case: Case) -> None:
    """How large a jury is."""
    clients, colluders, size = take(case, "clients colluders size")
    expect("size", size, draws.jury_size(clients, colluders))


def check_jury(case: Case) -> None:
    """Who is in a jury."""
    roster_digest, draw, clients, colluders, stated = take(case, "roster_digest draw clients colluders jury")
    expect("jury", stated, draws.jury(unhex(roster_digest), draw, clients, colluders))


def check_draw(case: Case, roster: draws.Roster, secrets: list[keys.RunKeys]) -> None:
    """A draw by a jury, from the request to the seed."""
    encoded, draw, request, stated, nonces, reveals, proof, seed = take(
        case, "parameters draw request statement nonces reveals proof seed"
    )
    p = parameters.decode(unhex(encoded))
    jury = draws.jury(p.roster_digest, draw, p.clients, p.colluders)
    named = sorted(jury[: -(-3 * len(jury) // 4)])
    everybody, chosen = set_of_users(range(p.clients), p.clients), set_of_users(named, p.clients)
    found = messages.encode_array("draw request", draw, roster.digest, everybody, chosen)
    expect("request", request, found.hex())
    expect("statement", stated, draws.statement(p, draw, everybody, chosen).hex())
    expect("nonces", nonces, [secrets[user].nonces[draw].hex() for user in named])
    expect("reveals", reveals, [draws.Juror(p, user, secrets[user]).answer(found).hex() for user in named])
    made = b"".join(draws.make_reveal(secrets[user], draw, unhex(stated)) for user in named)
    expect("proof", proof, messages.encode_array("draw proof", draw, everybody, chosen, made).hex())
    expect("seed", seed, draws.read_proof(p, roster, unhex(proof)).seed.hex())


def check_groups(case: Case) -> None:
    """Pods, committees and partners."""
    encoded, excluded, seed, pods = take(case, "parameters excluded seed pods")
    p = parameters.decode(unhex(encoded))
    found = groups.draw_groups(p, unhex(seed), excluded)
    expect("number of pods", len(pods), len(found))
    for stated, pod in zip(pods, found, strict=True):
        users, committees, partners = take(stated, "users committees partners")
        expect("users", users, pod.users)
        expect("committees", committees, pod.committees)
        expect("partners", partners, pod.partners[pod.users[0]])


def check_slices(case: Case) -> None:
    """Slices and who sends them."""
    dim, committees, served, length, bounds, sent = take(case, "dim committees served length bounds sent")
    filler: Case = dict.fromkeys(parameters.Parameters.__dataclass_fields__, 0)
    p = parameters.Parameters(
        **(filler | {"pattern": "committee", "dim": dim, "committees": committees, "served": served})
    )
    expect("length", length, p.length)
    expect("bounds", bounds, [list(p.bounds(number)) for number in range(committees)])
    for each in sent:
        committee, number, stated = take(each, "committee round slices")
        expect("slices", stated, p.slices_of(committee, number))


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
    derived = "holders contributors length width limit scale digit_bits digit_counts sizes"
    fields, data, stated_digest, run, thresholds, least, *_ = take(
        case, f"fields bytes digest run thresholds min_survivors {derived}"
    )
    p = parameters.from_json(fields)
    expect("bytes", data, p.canonical.hex())
    expect("decoded", parameters.decode(unhex(data)), p)
    expect("digest and run", (stated_digest, run), (p.digest.hex(), p.run.hex()))
    expect("thresholds", thresholds, [p.threshold_of(sum(sizes)) for sizes in p.sizes])
    expect("min_survivors", least, [[p.survivors_of(size) for size in sizes] for sizes in p.sizes])
    for name in derived.split():
        found = getattr(p, name)
        expect(name, case[name], list(found) if isinstance(found, tuple) else found)


def check_message(case: Case) -> None:
    """A message of each kind, written and read."""
    name, fields, data = take(case, "name fields bytes")
    contents = {key: unhex(value) if isinstance(value, str) else value for key, value in fields.items()}
    expect("bytes", data, messages.encode_array(name, *contents.values()).hex())
    if name in messages.OF_DRAWS:
        expect("decoded", list(contents.items()), list(messages.decode_draw(unhex(data), name).items()))
        return
    names = messages.FROM_USERS if name in messages.FROM_USERS else messages.FROM_SERVER
    found = messages.decode(unhex(data), names)
    read = {"round_number": found.round_number, "view": found.view, **found.fields}
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
    "digest_and_derive": {"digest": check_digest, "derive": check_derive, "expand": check_expand},
    "x25519_agreement": {"cases": check_agreement},
    "pair_chains": {"cases": check_pair_chain},
    "packages": {"heads": check_head, "pair_masks": check_pair_masks, "private_masks": check_private_masks},
    "shamir": {"cases": check_shamir},
    "false_shares": {"cases": check_false_shares},
    "mask_stream": {"cases": check_mask_stream},
    "roster": {},
    "jury": {"sizes": check_jury_size, "juries": check_jury},
    "draw": {},
    "groups": {"cases": check_groups},
    "slices": {"cases": check_slices},
    "gap_sampling": {"cases": check_gap_sampling},
    "quantise": {"fit": check_fit, "lift": check_lift},
    "parameters": {"cases": check_parameters},
    "messages": {"cases": check_message},
    "packing": {"cases": check_packing},
    "locations": {"cases": check_locations},
}


def checks_of_blocks(name: str, documents: Mapping[str, Case]) -> Iterator[Check]:
    """Return the checks of a file of building blocks."""
    document = documents[name]
    if name == "roster":
        if "digest" not in document or any("signed" not in user for user in document["users"]):
            raise Mismatch("a roster without its digest or without what is signed")
        yield name, lambda: check_roster(document)
        return
    if name == "draw":
        roster, secrets = roster_of(documents["roster"])
        for place, case in enumerate(*take(document, "cases")):
            yield f"draw {place}", lambda case=case: check_draw(case, roster, secrets)  # type: ignore[misc]
        return
    sections = BUILDING_BLOCKS[name]
    for section, cases in zip(sections, take(document, " ".join(sections)), strict=True):
        for place, case in enumerate(cases):
            check = sections[section]
            yield f"{section} {place}", lambda check=check, case=case: check(case)  # type: ignore[misc]
