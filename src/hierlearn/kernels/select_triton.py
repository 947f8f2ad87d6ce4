# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,no-any-return"
"""The Triton kernels of the curriculum: class sums, Algorithm 1, weights and loss.

The selection is a prefix of the class losses in ascending order, and needs no sort: losses are not
negative, so their bits are ordered as they are, and the smallest bits that are not selected
(``bound``) are found a few at a time, from the sum and the number of the losses below each of
several trials. Of the losses that tie at the bound the first in class order are taken, as a stable
sort would. Sums of thousands of losses are compared with integers, for which single precision is
too coarse: they are double.
"""

import triton
import triton.language as tl

TRIALS = tl.constexpr(128)  # per round of the search, which settles 7 bits
LAST = tl.constexpr(4)  # the number of its last round, which settles 3 bits
LAST_TRIALS = tl.constexpr(8)  # of that round


@triton.jit
def sum_counts(counts, G, which: tl.constexpr):
    """Return the sum over the programs of the errors (0) or of the known entries (1)."""
    total = tl.zeros([1024], tl.int64)
    for first in range(0, G, 1024):
        numbers = first + tl.arange(0, 1024)
        total += tl.load(counts + 2 * numbers + which, mask=numbers < G, other=0).to(tl.int64)
    return tl.sum(total, axis=0)


@triton.jit
def reduction_factor(counts, G, entries, MASKED: tl.constexpr, MEAN: tl.constexpr):
    """Return 1 over the divisor of the reduction."""
    share = 1.0
    if MEAN:
        known = entries
        if MASKED:
            known = sum_counts(counts, G, 1).to(tl.float32)
        share = 1.0 / tl.maximum(known, 1.0)
    return share


@triton.jit
def limit_of(errors, threshold, C, rows, BY_ROWS: tl.constexpr, FIXED: tl.constexpr):
    """Return C + e_h, or the threshold that replaces it."""
    limit = errors
    if BY_ROWS:
        limit = tl.div_rn(limit, rows)
    limit = (limit + C).to(tl.float64)
    if FIXED:
        limit = tl.load(threshold)
    return limit


@triton.jit
def class_values(sums, inside, rows, BY_ROWS: tl.constexpr):
    """Return the losses that are compared, in double precision, and their bits."""
    value = sums
    if BY_ROWS:
        value = tl.div_rn(sums, rows)
    bits = tl.where(inside, value.to(tl.int32, bitcast=True), 2147483647)
    return value.to(tl.float64), bits


@triton.jit
def reduce_sums(
    partials, counts, sums, stats, parts, G, C, scale, entries,
    MASKED: tl.constexpr, MEAN: tl.constexpr, BG: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Add the partial class sums up; write e_h and 1 over the divisor of the reduction to stats."""
    cols = tl.program_id(0) * BC + tl.arange(0, BC)
    total = tl.zeros([BG, BC], tl.float32)
    for first in range(0, parts, BG):
        numbers = first + tl.arange(0, BG)
        ok = (numbers < parts)[:, None] & (cols < C)[None, :]
        at = numbers.to(tl.int64)[:, None] * C + cols[None, :]
        total += tl.load(partials + at, mask=ok, other=0.0)
    tl.store(sums + cols, tl.sum(total, axis=0) * scale, mask=cols < C)
    if tl.program_id(0) == 0:
        tl.store(stats, sum_counts(counts, G, 0).to(tl.float32))
        tl.store(stats + 1, reduction_factor(counts, G, entries, MASKED, MEAN))


@triton.jit
def select_and_weigh(
    partials, counts, threshold, sums, selected, weights, stats, loss,
    parts, G, C, rows, scale, floor, entries, writes,
    MASKED: tl.constexpr, MEAN: tl.constexpr, BY_ROWS: tl.constexpr, FIXED: tl.constexpr,
    BG: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Sums, e_h, selection, weights and loss of few classes, 3 bits of the bound per iteration.

    Several programs may do the same, if only one of them ``writes``. Returns the weights (BC,) and
    1 over the divisor of the reduction.
    """
    cols = tl.arange(0, BC)
    inside = cols < C
    total = tl.zeros([BC], tl.float32)
    for first in range(0, parts, BG):
        numbers = first + tl.arange(0, BG)
        ok = (numbers < parts)[:, None] & inside[None, :]
        part = tl.load(partials + numbers[:, None] * C + cols[None, :], mask=ok, other=0.0)
        total += tl.sum(part, axis=0)
    total *= scale
    errors = sum_counts(counts, G, 0).to(tl.float32)
    share = reduction_factor(counts, G, entries, MASKED, MEAN)
    limit = limit_of(errors, threshold, C, rows, BY_ROWS, FIXED)
    value, bits = class_values(total, inside, rows, BY_ROWS)
    counted = value + 1.0  # the sum of the losses and their number together
    bound = 0
    for step in range(11):
        trials = bound + (tl.arange(0, 8) << tl.maximum(28 - 3 * step, 0))
        # One column per trial: a thread adds up most of the losses on its own.
        low = bits[:, None] < trials[None, :]
        amounts = tl.sum(tl.where(low, counted[:, None], 0.0), axis=0)
        bound = tl.max(tl.where((amounts <= limit + 1.0) | (amounts == 0.0), trials, bound), axis=0)
    low = bits < bound
    amount = tl.sum(tl.where(low, value, 0.0), axis=0)
    number = tl.sum(low.to(tl.int32), axis=0)
    ties = bits == bound
    rank = tl.cumsum(ties.to(tl.int32), axis=0)
    tied = tl.where(ties, value, 0.0)
    reached = amount + rank.to(tl.float64) * tied + (number + rank - 1)
    chosen = inside & (low | (ties & (reached <= limit)))
    weight = tl.where(chosen, 1.0, floor)
    if writes:
        # 0 times the infinite loss of an unselected class is 0; NaN always shows.
        used = tl.where((weight > 0) | (total != total), total, 0.0).to(tl.float64) * weight
        tl.store(sums + cols, total, mask=inside)
        tl.store(selected + cols, chosen, mask=inside)
        tl.store(weights + cols, weight, mask=inside)
        tl.store(stats, errors)
        tl.store(stats + 1, share)
        tl.store(loss, (tl.sum(used, axis=0) * share).to(tl.float32))
    return weight, share


@triton.jit
def select_few(
    partials, counts, threshold, sums, selected, weights, stats, loss,
    parts, G, C, rows, scale, floor, entries,
    MASKED: tl.constexpr, MEAN: tl.constexpr, BY_ROWS: tl.constexpr, FIXED: tl.constexpr,
    BG: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """``select_and_weigh`` as a kernel of one program."""
    select_and_weigh(
        partials, counts, threshold, sums, selected, weights, stats, loss,
        parts, G, C, rows, scale, floor, entries, True,
        MASKED, MEAN, BY_ROWS, FIXED, BG, BC,
    )  # fmt: skip


@triton.jit
def shift_of(round_number):
    """Return the lowest bit of a round."""
    return tl.maximum(24 - 7 * round_number, 0)


@triton.jit
def round_result(
    amounts, numbers, bounds, round_number, limit, CHUNKS: tl.constexpr, FINAL: tl.constexpr
):  # fmt: skip
    """Return the bound after a round of the search, and its trial.

    After the FINAL round, also the sum and the number of the losses below the bound.
    """
    at = tl.arange(0, CHUNKS)[:, None] * TRIALS + tl.arange(0, TRIALS)[None, :]
    trial = tl.arange(0, TRIALS)
    number = tl.zeros([TRIALS], tl.int32)
    if FINAL:
        tried = (trial <= LAST_TRIALS)[None, :]
        amount = tl.sum(tl.load(amounts + at, mask=tried, other=0.0), axis=0)
        number = tl.sum(tl.load(numbers + at, mask=tried, other=0), axis=0)
        fits = ((number == 0) | (amount + (number - 1) <= limit)) & (trial < LAST_TRIALS)
    else:
        at += (round_number % 2) * CHUNKS * TRIALS
        amount = tl.sum(tl.load(amounts + at), axis=0)
        fits = (amount == 0.0) | (amount <= limit + 1.0)
    best = tl.max(tl.where(fits, trial, 0), axis=0)
    bound = tl.load(bounds + round_number) + (best << shift_of(round_number))
    amount = tl.sum(tl.where(trial == best, amount, 0.0), axis=0)
    number = tl.sum(tl.where(trial == best, number, 0), axis=0)
    return bound, best, amount, number


@triton.jit(do_not_specialize=["round_number"])
def search_round(
    sums, stats, threshold, amounts, numbers, bounds, totals, round_number, C, chunk, rows,
    BY_ROWS: tl.constexpr, FIXED: tl.constexpr, CHUNKS: tl.constexpr,
    BK: tl.constexpr, GROUP: tl.constexpr, FINAL: tl.constexpr,
):  # fmt: skip
    """One round of the search: (CHUNKS, TRIALS) amounts of losses below each trial.

    An amount is the sum of the losses and their number together; the FINAL round keeps them apart.
    """
    limit = limit_of(tl.load(stats), threshold, C, rows, BY_ROWS, FIXED)
    bound = 0
    if round_number > 0:
        bound, _best, _amount, _number = round_result(
            amounts, numbers, bounds, round_number - 1, limit, CHUNKS, False
        )
    program = tl.program_id(0)
    mine = tl.program_id(1) * GROUP + tl.arange(0, GROUP)
    trials = bound + (mine << shift_of(round_number))
    amount = tl.zeros([BK, GROUP], tl.float64)
    number = tl.zeros([BK, GROUP], tl.int32)
    total = tl.zeros([BK], tl.float64)
    end = tl.minimum(program * chunk + chunk, C)
    for first in range(program * chunk, end, BK):
        cols = first + tl.arange(0, BK)
        loss = tl.load(sums + cols, mask=cols < end, other=0.0)
        value, bits = class_values(loss, cols < end, rows, BY_ROWS)
        low = bits[:, None] < trials[None, :]
        if FINAL:
            total += loss.to(tl.float64)
            number += low.to(tl.int32)
        else:
            value += 1.0
        amount += tl.where(low, value[:, None], 0.0)
    at = ((round_number % 2) * CHUNKS + program) * TRIALS + mine
    tl.store(amounts + at, tl.sum(amount, axis=0))
    if FINAL:
        tl.store(numbers + program * TRIALS + mine, tl.sum(number, axis=0))
        tl.store(totals + program, tl.sum(total, axis=0))
    if (tl.program_id(1) == 0) & (program == 0):
        tl.store(bounds + round_number, bound)


@triton.jit
def finish_search(
    sums, stats, threshold, amounts, numbers, bounds, totals, selected, weights, loss,
    C, chunk, rows, floor,
    BY_ROWS: tl.constexpr, FIXED: tl.constexpr, CHUNKS: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Select and weigh after the last round of the search; the first program writes the loss."""
    limit = limit_of(tl.load(stats), threshold, C, rows, BY_ROWS, FIXED)
    bound, best, amount, number = round_result(amounts, numbers, bounds, LAST, limit, CHUNKS, True)
    program = tl.program_id(0)
    # The last round tried neighboring bits: the ties of a chunk lie between two of its trials.
    chunks = tl.arange(0, CHUNKS)
    at = chunks * TRIALS + best
    ties = tl.maximum(tl.load(numbers + at + 1) - tl.load(numbers + at), 0)
    rank = tl.sum(tl.where(chunks < program, ties, 0), axis=0)
    end = tl.minimum(program * chunk + chunk, C)
    for first in range(program * chunk, end, BK):
        cols = first + tl.arange(0, BK)
        inside = cols < end
        value, bits = class_values(
            tl.load(sums + cols, mask=inside, other=0.0), inside, rows, BY_ROWS
        )
        tied = bits == bound
        place = rank + tl.cumsum(tied.to(tl.int32), axis=0)
        value = tl.where(tied, value, 0.0)
        reached = amount + place.to(tl.float64) * value + (number + place - 1)
        chosen = inside & ((bits < bound) | (tied & (reached <= limit)))
        tl.store(selected + cols, chosen, mask=inside)
        tl.store(weights + cols, tl.where(chosen, 1.0, floor), mask=inside)
        rank += tl.sum(tied.to(tl.int32), axis=0)
    if program == 0:
        # Of the ties, the most that fit: the quotient may be off by one rounding.
        value = bound.to(tl.float32, bitcast=True)
        finite = value < float("inf")  # else nothing fits, or there are no ties
        most = tl.where(finite, tl.sum(ties, axis=0), 0)
        value = tl.where(finite, value, 0.0).to(tl.float64)
        fit = tl.minimum((limit - amount - (number - 1)) / (value + 1.0) + 1.0, most + 0.0)
        taken = tl.maximum(fit, 0.0).to(tl.int32)
        reached = amount + taken.to(tl.float64) * value + (number + taken - 1)
        taken -= ((taken > 0) & (reached > limit)).to(tl.int32)
        chosen_sum = amount + taken.to(tl.float64) * value
        if BY_ROWS:
            chosen_sum *= rows
        total = tl.sum(tl.load(totals + chunks), axis=0)
        # 0 times the infinite loss of an unselected class is 0; NaN always shows.
        total = tl.where((floor > 0) | (total != total), total, 0.0)
        used = chosen_sum * (1.0 - floor) + total * floor
        tl.store(loss, (used * tl.load(stats + 1)).to(tl.float32))
