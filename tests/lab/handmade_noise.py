"""A noise study whose values are chosen, so that tests know every figure."""

from hierlearn.lab.candidates import Candidate
from hierlearn.lab.noise_figures import summarize_noise

RATES = [0.0, 0.4]
# By loss: accuracy without and with noise, one per draw; the distance is 3 times what lacks.
VALUES = {
    "flat": ([0.80, 0.82, 0.81], [0.60, 0.63, 0.61]),
    "firm": ([0.79, 0.82, 0.80], [0.755, 0.785, 0.76]),
    "weak": ([0.81, 0.82, 0.81], [0.30, 0.32, 0.31]),
    "like": ([0.80, 0.82, 0.82], [0.61, 0.62, 0.61]),
}


def by_draw(found, count, unit):
    """One value per draw, or all of them seeds of one draw."""
    kept = found[:count]
    return [[value] for value in kept] if unit == "draws" else [kept]


def summary(values=VALUES, *, labels=None, kinds=("labels",), count=3, unit="draws", **changes):
    """``values`` by candidate and rate, one per repetition; ``changes`` are of the config."""
    drawn = {
        key: [by_draw(found, count, unit) for found in column] for key, column in values.items()
    }
    return summary_of(drawn, labels=labels, kinds=kinds, **changes)


def summary_of(drawn, *, labels=None, kinds=("labels",), **changes):
    """Return the summary of values by candidate, rate, draw and seed."""
    candidates = [
        Candidate(key, loss="bce", label=(labels or {}).get(key, key.title())) for key in drawn
    ]
    draws = len(next(iter(drawn.values()))[0])
    column = [
        [
            {key: metrics(found[place][draw]) for key, found in drawn.items()}
            for draw in range(draws)
        ]
        for place in range(len(RATES))
    ]
    config = {
        "noise_seed": 0,
        "first_seed": 7,
        "corrupted": {kind: [[rate] * draws for rate in RATES] for kind in kinds},
        "still_improving": {kind: [[], []] for kind in kinds},
    }
    return summarize_noise(dict.fromkeys(kinds, column), RATES, candidates, {**config, **changes})


def metrics(seeds):
    return {
        "terminal-accuracy": seeds,
        "lca-height": [3 * (1 - value) for value in seeds],
        "level-1": seeds,
    }
