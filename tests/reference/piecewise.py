"""Piecewise-linear encoding of numbers in plain loops over the formula.

    e_t = clip((x - b_{t-1}) / (b_t - b_{t-1}), 0, 1)

where the first of T goes down to -1 and the last up to 2; then (e_t - mean) / deviation over the
training rows, a missing value being the mean.
"""

import math


def edges_of(column, bins):
    """Return the distinct quantiles of the known values; none where all are equal."""
    known = sorted(x for x in column if not math.isnan(x))
    if not known or known[0] == known[-1]:
        return []
    found = []
    for t in range(bins + 1):
        edge = known[t * (len(known) - 1) // bins]
        if edge not in found:
            found.append(edge)
    return found


def encode(x, edges):
    """Return the T numbers of one value, before they are standardized."""
    count = len(edges) - 1
    found = []
    for t in range(1, count + 1):
        ratio = (x - edges[t - 1]) / (edges[t] - edges[t - 1])
        least = -1.0 if t == 1 else 0.0
        most = 2.0 if t == count else 1.0
        found.append(min(max(ratio, least), most))
    return found


def encode_rows(train, rows, bins):
    """Return the standardized encoding of rows, with bins and moments of the training rows."""
    result = [[] for _ in rows]
    for column in range(len(train[0])):
        values = [row[column] for row in train]
        edges = edges_of(values, bins)
        if not edges:
            for made in result:
                made.append(0.0)
            continue
        known = [encode(x, edges) for x in values if not math.isnan(x)]
        for t in range(len(edges) - 1):
            mean = math.fsum(one[t] for one in known) / len(known)
            squares = math.fsum((one[t] - mean) ** 2 for one in known)
            deviation = math.sqrt(squares / len(train))
            for row, made in zip(rows, result, strict=True):
                x = row[column]
                made.append(0.0 if math.isnan(x) else (encode(x, edges)[t] - mean) / deviation)
    return result
