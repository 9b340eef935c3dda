"""What a curious server reads of SparseSecAgg (arXiv 2112.12872): the components of its mask graph. NumPy only."""

import numpy as np

N, ALPHA, THETA, COORDINATES = 100, 0.1, 0.3, 8_000
rng = np.random.default_rng(0)
one, other = np.triu_indices(N, 1)  # all pairs of users

for colluders in (0, N // 3):
    sent = alone = in_pairs = 0
    for _ in range(COORDINATES):  # every coordinate of the model has a mask graph of its own
        edge = np.flatnonzero(rng.random(len(one)) < ALPHA / (N - 1))  # b_ij = 1, eq. (13) of the paper
        a, b = one[edge], other[edge]
        honest = rng.permutation(N) >= colluders
        stays = honest & (rng.random(N) >= THETA)  # whose masks the server can't remove
        senders = np.zeros(N, bool)
        senders[a] = senders[b] = True  # user i sends the coordinate if some b_ij is 1, eq. (19)
        label = np.arange(N)  # connected components of the honest users who stay
        left = stays[a] & stays[b]
        for _ in range(N):
            low = np.minimum(label[a[left]], label[b[left]])
            if (label[a[left]] == low).all() and (label[b[left]] == low).all():
                break
            np.minimum.at(label, a[left], low)
            np.minimum.at(label, b[left], low)
        size = np.bincount(label[senders & stays], minlength=N)
        sent, alone, in_pairs = sent + size.sum(), alone + (size == 1).sum(), in_pairs + 2 * (size == 2).sum()
    print(
        f"{colluders:2} colluders: {alone / sent:.1%} of all values read in the clear, {in_pairs / sent:.0%} in pairs"
    )
