"""The threshold of ``stop`` by conformal risk control."""

from reference.decoding.common import ROOT
from reference.decoding.stop import stop
from reference.decoding.top_down import greedy_chain


def stop_errors(rows, targets, parents, threshold):
    """Count the rows whose answer at this threshold is neither the root nor a label of theirs."""
    answers = stop(rows, parents, threshold)
    return sum(a != ROOT and not y[a] for a, y in zip(answers, targets, strict=True))


def rows_needed(alpha):
    """Return the smallest n with 1 / (n + 1) <= alpha: with fewer rows nothing can be promised."""
    n = 0
    while 1 / (n + 1) > alpha:
        n += 1
    return n


def check_calibration(rows, alpha):
    if not 0 < alpha < 1:
        raise ValueError(f"alpha {alpha} must lie between 0 and 1")
    if len(rows) < rows_needed(alpha):
        raise ValueError(f"{len(rows)} rows; alpha {alpha} needs {rows_needed(alpha)}")


def risk_threshold(rows, targets, parents, alpha):
    """Return the smallest threshold t that conformal risk control allows at the level alpha.

        (errors(t) + 1) / (n + 1) <= alpha

    Every place where an answer can change is tried: 0 and the p of every class on a chain.
    """
    check_calibration(rows, alpha)
    tried = {0}
    for row in rows:
        tried |= {row[c] for c in greedy_chain(row, parents)}
    for t in sorted(tried):
        if (stop_errors(rows, targets, parents, t) + 1) / (len(rows) + 1) <= alpha:
            return t
    raise AssertionError("the largest p stops every row at the root")


def first_wrong(row, target, parents):
    """Return the smallest p met on the chain up to its first wrong class; 0 if none is wrong.

    The row errs at the threshold t exactly where this score is larger than t.
    """
    chain = greedy_chain(row, parents)
    for i in range(len(chain)):
        if not target[chain[i]]:
            return min(row[c] for c in chain[: i + 1])
    return 0
