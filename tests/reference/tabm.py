"""TabM, by loops: every member is an MLP of its own whose weights are s * W * r.

    h = relu(sum over d of W[d][k] r_i[d] s_i[k] h[d]  +  b_i[k]),    logits_i = V_i h + c_i

The loss is the mean of the losses of the members, the answer the mean of their probabilities.
"""

from reference.links import sigmoid


def member_logits(x, layers, head, number):
    """Return the C logits of one member; weights are nested lists, one list per input."""
    for weight, r, s, bias in layers:
        x = [
            max(
                0.0,
                bias[number][k]
                + sum(x[d] * r[number][d] * weight[d][k] * s[number][k] for d in range(len(x))),
            )
            for k in range(len(weight[0]))
        ]
    weight, bias = head
    return [
        bias[j] + sum(x[d] * weight[d][j] for d in range(len(x))) for j in range(len(weight[0]))
    ]


def tabm(x, layers, heads):
    """Return the mean of the sigmoids of all members, for one row."""
    parts = [member_logits(x, layers, head, number) for number, head in enumerate(heads)]
    return [sum(sigmoid(part[j]) for part in parts) / len(parts) for j in range(len(parts[0]))]
