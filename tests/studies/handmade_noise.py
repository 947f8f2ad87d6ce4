"""A noise study whose values are chosen, so that tests know every figure."""

from hierlearn.studies.candidates import Candidate
from hierlearn.studies.noise_figures import summarize_noise

RATES = [0.0, 0.4]
# By loss: accuracy without and with noise, a value a seed; the distance is 3 times what lacks.
VALUES = {
    "flat": ([0.80, 0.82, 0.81], [0.60, 0.63, 0.61]),
    "firm": ([0.79, 0.82, 0.80], [0.755, 0.785, 0.76]),
    "weak": ([0.81, 0.82, 0.81], [0.30, 0.32, 0.31]),
    "like": ([0.80, 0.82, 0.82], [0.61, 0.62, 0.61]),
}


def summary(values=VALUES, labels=None, kinds=("labels",), seeds=3, improving=()):
    candidates = [
        Candidate(key, loss="bce", label=(labels or {}).get(key, key.title())) for key in values
    ]
    column = [
        {
            key: {
                "terminal-accuracy": found[place][:seeds],
                "lca-height": [3 * (1 - value) for value in found[place][:seeds]],
                "level-1": found[place][:seeds],
            }
            for key, found in values.items()
        }
        for place in range(len(RATES))
    ]
    by_kind = dict.fromkeys(kinds, column)
    config = {
        "noise_seed": 0,
        "corrupted": dict.fromkeys(kinds, RATES),
        "still_improving": {kind: [[], list(improving)] for kind in kinds},
    }
    return summarize_noise(by_kind, RATES, candidates, config)
