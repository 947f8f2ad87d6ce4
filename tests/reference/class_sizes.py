"""What rows of new classes count, by loops."""

import statistics


def counted_weights(labels, later, weights):
    """Return the weight of every row.

    Args:
        labels: the most specific labels of every row.
        later: whether each row came after the training.
        weights: how much each row counts by itself.
    """
    sizes, trained = {}, set()
    for row, own in enumerate(labels):
        for label in own:
            sizes[label] = sizes.get(label, 0.0) + weights[row]
            if not later[row]:
                trained.add(label)
    if not trained:
        return list(weights)
    usual = statistics.mean(sizes[label] for label in trained)
    found = []
    for row, own in enumerate(labels):
        factor = 1.0
        for label in own:
            if label not in trained:
                factor = max(factor, min(60.0, 1.5 * usual / sizes[label]))
        found.append(weights[row] * factor)
    return found
