"""What noise does, in words: each claim against the figures it is made from."""

import pytest

from hierlearn.lab.noise_figures import noise_verdict
from lab.handmade_noise import VALUES, summary


def test_who_loses_least_and_who_differs():
    assert noise_verdict(summary()) == (
        "Label noise. From 0 % to 40 % Firm loses least of terminal accuracy (-3.7 points), Weak "
        "most (-50.3 points); Flat: -19.7 points. Harmed less than Flat beyond draw-to-draw noise: "
        "Firm; harmed more: Weak; no difference: Like. The mean LCA height grows least with Firm "
        "(+0.110), most with Weak (+1.510); Flat: +0.590. Harmed less than Flat beyond "
        "draw-to-draw noise: Firm; harmed more: Weak; no difference: Like. At 40 % the best "
        "terminal accuracy is that of Firm (76.7 %). Better than Flat beyond draw-to-draw noise: "
        "Firm; worse: Weak; no difference: Like. At 40 % the best mean LCA height is that of Firm "
        "(0.700). Better than Flat beyond draw-to-draw noise: Firm; worse: Weak; no difference: "
        "Like."
    )


def test_of_a_single_draw_the_noise_is_that_of_seeds():
    draws, seeds = noise_verdict(summary()), noise_verdict(summary(unit="seeds"))
    assert seeds == (
        "One draw of the noise: differences are told from seed noise alone.\n\n"
        + draws.replace("draw-to-draw noise", "seed noise")
    )


def test_many_candidates_without_a_difference_are_counted():
    values = {"flat": VALUES["flat"], "weak": VALUES["weak"]}
    four = {**values, **{f"like{k}": VALUES["like"] for k in range(4)}}
    assert "no difference: Like0, Like1, Like2, Like3." in noise_verdict(summary(four))
    five = {**values, **{f"like{k}": VALUES["like"] for k in range(5)}}
    found = noise_verdict(summary(five))
    assert "noise: Weak; no difference: the other 5." in found
    assert "Like0" not in found


def test_one_paragraph_per_kind():
    found = noise_verdict(summary(kinds=("labels", "hierarchy"))).split("\n\n")
    assert [one.split(".")[0] for one in found] == ["Label noise", "Hierarchy noise"]


@pytest.mark.parametrize("unit", ["draws", "seeds"])
def test_nothing_is_claimed_of_one_run(unit):
    found = noise_verdict(summary(count=1, unit=unit))
    assert found.startswith("With one draw and one seed no difference can be told from noise.")
    assert "beyond" not in found


def test_where_none_is_better_and_where_none_differs():
    some = {key: VALUES[key] for key in ("flat", "weak")}
    found = noise_verdict(summary(some))
    assert "Harmed more than Flat beyond draw-to-draw noise: Weak." in found
    assert "Worse than Flat beyond draw-to-draw noise: Weak." in found
    same = noise_verdict(summary({key: VALUES[key] for key in ("flat", "like")}))
    assert "No other candidate is harmed more or less than Flat beyond draw-to-draw noise." in same
    assert "No other candidate differs from Flat by more than draw-to-draw noise." in same
    assert "beyond draw-to-draw noise:" not in same


def test_one_loss_alone():
    found = noise_verdict(summary({"flat": VALUES["flat"]}))
    assert found == (
        "Label noise. From 0 % to 40 % Flat changes terminal accuracy by -19.7 points. From 0 % to "
        "40 % Flat changes the mean LCA height by +0.590."
    )


def test_noise_that_was_not_possible_is_told():
    found = summary()
    found["corrupted"]["labels"] = [[0.0] * 3, [0.2, 0.25, 0.3]]
    assert noise_verdict(found).startswith(
        "Label noise. Really corrupted: 0.0, 25.0 % where 0, 40 % were asked for; more was not "
        "possible. From 0 %"
    )
