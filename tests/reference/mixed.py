"""A weighted sum of losses of every entry, MixedLoss.

loss(i, j) = sum over the parts k of w_k l_k(i, j)
"""


def mixed(parts, weights):
    """Return the N x C losses; ``parts`` holds one N x C list per weight."""
    if len(parts) != len(weights):
        raise ValueError(f"{len(parts)} parts need as many weights, not {len(weights)}")
    out = [[0.0 for _ in row] for row in parts[0]]
    for part, weight in zip(parts, weights, strict=True):
        for i in range(len(out)):
            for j in range(len(out[i])):
                out[i][j] += weight * part[i][j]
    return out
