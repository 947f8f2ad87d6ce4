"""The hierarchical constraint (the paper's l_h, Corollary 1 and equation 10, and e_h, equation 3).

    l_h(i, j) = max(l(i, j), max of l(i, k) over the classes k that bind j)

scope "levels" (the paper): k binds j when m(k) < m(j). scope "ancestors": when k is an ancestor
of j. scope None: nothing binds. An unknown entry (mask False) binds no other and has
loss 0.
"""

from reference.taxonomy import ancestors_or_self, levels


def binding_classes(parents, scope):
    """Return, for every class j, the other classes that bind it, in class order."""
    m = levels(parents)
    out = []
    for j in range(len(parents)):
        if scope == "levels":
            out.append([k for k in range(len(parents)) if m[k] < m[j]])
        elif scope == "ancestors":
            out.append([k for k in ancestors_or_self(parents, j) if k != j])
        elif scope is None:
            out.append([])
        else:
            raise ValueError(f"scope is 'levels', 'ancestors' or None, not {scope!r}")
    return out


def is_known(mask, i, j):
    return mask is None or bool(mask[i][j])


def constrain(losses, parents, scope, mask=None):
    """Return l_h, N x C."""
    above = binding_classes(parents, scope)
    out = [[0.0 for _ in row] for row in losses]
    for i in range(len(losses)):
        for j in range(len(parents)):
            if not is_known(mask, i, j):
                continue
            value = losses[i][j]
            for k in above[j]:
                if is_known(mask, i, k):
                    value = max(value, losses[i][k])
            out[i][j] = value
    return out


def constrain_gradient(losses, parents, scope, upstream, mask=None):
    """Return the gradient of sum(upstream * l_h) in the losses, N x C.

    Each upstream entry goes entirely to the entry that attains its maximum: the class's own if that
    ties, else the first maximizer in class order.
    """
    above = binding_classes(parents, scope)
    out = [[0.0 for _ in row] for row in losses]
    for i in range(len(losses)):
        for j in range(len(parents)):
            if not is_known(mask, i, j):
                continue
            winner = j
            for k in above[j]:
                if is_known(mask, i, k) and losses[i][k] > losses[i][winner]:
                    winner = k
            out[i][winner] += upstream[i][j]
    return out


def smallest_majorant(losses, parents, scope):
    """Return the smallest g >= losses with the paper's Lambda (equation 2).

    Lambda: if k binds j then g(j) >= g(k). A fix-point: start from the losses and raise an entry
    that violates Lambda just as far as needed, until none does. Whatever satisfies Lambda above
    the losses is above every step.
    """
    above = binding_classes(parents, scope)
    out = [list(row) for row in losses]
    for g in out:
        raised = True
        while raised:
            raised = False
            for j in range(len(parents)):
                for k in above[j]:
                    if g[j] < g[k]:
                        g[j] = g[k]
                        raised = True
    return out
