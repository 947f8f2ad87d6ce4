"""The class-based curriculum (the paper's equation 12 and Algorithm 1), with a floor.

    F(s) = max(sum_j s_j L_j, C - sum_j s_j + e_h)          L_j = sum_i l_h(i, j) >= 0
    l_hc = min of F(s) over s in {0, 1}^C

Algorithm 1. For a given number k of selected classes the second term is fixed and the first is
least for the k smallest losses, so sort ascending, with S_K the sum of the first K. As K grows,
S_K does not fall and C - K + e_h falls by one. Position K improves on K - 1, or does no harm, iff

    S_K <= C - (K - 1) + e_h = thresh + 1 - K               thresh = C + e_h

for then both terms of F at K are at most the second term at K - 1. Otherwise S_K exceeds both
terms at K - 1 (S_{K-1} <= S_K), here and at every later position, as the left side does not fall
and the right side does. So the selection is: every position before the first K with
S_K > thresh + 1 - K, which is the printed text after a sort. At equality both are optimal; the
printed strict sign selects the class.

The floor. With s in {f, 1}, 0 <= f < 1, instead of {0, 1}: let e <= e_h <= sum_j L_j = l_h, which
a base loss of at least the 0-1 loss grants (bce in base 2; the natural logarithm does not). Let
s* be Algorithm 1's selection (the floor-0 problem) and w = f + (1 - f) s* its weights in {f, 1}.

    e <= e_h <= min over {f, 1}^C of F <= F(w) <= f l_h + (1 - f) l_hc <= l_h

 1. s_j <= 1 makes C - sum_j s_j >= 0, so F(s) >= e_h >= e for every s in [0, 1]^C.
 2. w lies in {f, 1}^C, so the minimum is at most F(w).
 3. F is a maximum of two affine functions of s, hence convex, and w = f (1, ..., 1) + (1 - f) s*:
    F(w) <= f F(1) + (1 - f) F(s*), with F(1) = max(l_h, e_h) = l_h and F(s*) = l_hc.
 4. l_hc <= F(1) = l_h, so that combination is at most l_h.

So the bounds hold for both readings. What does not hold: F(w) need not be the minimum over
{f, 1}^C (``select_exact`` finds that one; it selects no more classes than s*), and neither of the
two is ordered against l_hc: either side may be the smaller. And the training loss is the first
term alone, sum_j w_j L_j; that is at most l_h, but it can fall below e.
"""

import itertools


def objective(s, class_losses, errors):
    """F(s); a class of weight 0 adds nothing even if its loss is infinite."""
    total = 0.0
    for j in range(len(class_losses)):
        if s[j] != 0:
            total += s[j] * class_losses[j]
    return max(total, len(class_losses) - sum(s) + errors)


def brute_force(class_losses, errors, floor=0.0):
    """Return the least F(s) over all 2^C vectors s in {floor, 1}^C."""
    return min(
        objective(s, class_losses, errors)
        for s in itertools.product([floor, 1.0], repeat=len(class_losses))
    )


def select_as_printed(class_losses, thresh):
    """Algorithm 1 as printed, in class order and without a sort. Returns C bools."""
    selected = [False for _ in class_losses]
    total = 0.0
    for K in range(1, len(class_losses) + 1):
        total += class_losses[K - 1]
        if total > thresh + 1 - K:
            break
        selected[K - 1] = True
    return selected


def select(class_losses, thresh):
    """Algorithm 1 after an ascending sort (ties in class order). Returns C bools."""
    order = sorted(range(len(class_losses)), key=lambda j: class_losses[j])  # stable
    chosen = select_as_printed([class_losses[j] for j in order], thresh)
    selected = [False for _ in class_losses]
    for position, j in enumerate(order):
        selected[j] = chosen[position]
    return selected


def select_exact(class_losses, errors, floor):
    """Return the minimizer of F over {floor, 1}^C as C bools.

    With K classes at 1 the terms are f S_C + (1 - f) S_K and (1 - f) (C - K) + e_h; position K is
    taken iff the first at K is at most the second at K - 1. Divided by 1 - f that is Algorithm 1
    with thresh = C + (e_h - f S_C) / (1 - f), which is at most C + e_h where e_h <= S_C.
    """
    total = sum(class_losses)
    return select(class_losses, len(class_losses) + (errors - floor * total) / (1.0 - floor))


def weights(selected, floor=0.0):
    """Return s in {floor, 1}^C."""
    return [1.0 if chosen else floor for chosen in selected]
