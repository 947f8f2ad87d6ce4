"""Reference decoding among allowed classes only."""

from fractions import Fraction

from reference import decoding
from reference.decoding_examples import DAG, ROW, TREE, cases, chosen, tenths
from reference.taxonomy import ancestors_or_self


def test_renormalized_by_hand():
    # cat has 1 of 3, bulldog 2 of 3, and dog and animal what lies below them; dog's own mass,
    # pug's and plant's are gone
    p = decoding.renormalized(ROW, TREE, [2, 4])
    assert p == [1, 0, Fraction(1, 3), Fraction(2, 3), Fraction(2, 3), 0]
    # dog stands for itself and its breeds: 1, 2 and 3 of 6; naming pug as well adds nothing
    p = [1, 0, 0, 1, Fraction(1, 3), Fraction(1, 2)]
    assert decoding.renormalized(ROW, TREE, [3]) == p
    assert decoding.renormalized(ROW, TREE, [3, 5]) == p
    # the mass at the root goes too
    assert decoding.renormalized(ROW, TREE, [0, 1])[:2] == [Fraction(7, 9), Fraction(2, 9)]
    # of 1, 2, 1, 2 and 3 tenths in the DAG, 3 and 4 are left: 2 and 3 of 5
    p = decoding.renormalized(tenths(7, 7, 4, 5, 3), DAG, [3])
    assert p == [1, 1, Fraction(3, 5), 1, Fraction(3, 5)]
    assert decoding.renormalized(tenths(10, 0, 10, 0, 0, 0), TREE, [3]) == [0] * 6


def test_kept_classes_by_hand():
    assert decoding.kept_classes(TREE, [5]) == {0, 3, 5}
    assert decoding.kept_classes(TREE, [3, 1]) == {0, 1, 3, 4, 5}
    assert decoding.kept_classes(DAG, [3]) == {0, 1, 2, 3, 4}  # 2 stands above 4
    assert decoding.kept_classes(DAG, [2]) == {0, 1, 2, 3, 4}
    assert decoding.kept_classes(DAG, [1]) == {0, 1, 2, 3, 4}


def test_subset_by_hand():
    def answer(row, allowed, decoder, **options):
        return decoding.subset([row], TREE, allowed, decoder, **options)[0]

    # p = 1, 0, 1/3, 2/3, 2/3, 0
    assert answer(ROW, [2, 4], "argmax") == 0
    assert answer(ROW, [2, 4], "leaf") == 4
    assert answer(ROW, [2, 4], "top-down") == 4
    assert answer(ROW, [2, 4], "stop") == 4
    assert answer(ROW, [2, 4], "stop", threshold=Fraction(2, 3)) == 0
    # heights stay those of the whole tree: cat 3 - 1 - 2/3, bulldog 3 - 1 - 2/3 - 2/3
    assert answer(ROW, [2, 4], "cost") == 4
    # paths, as level + mean level - twice the p on the way, the mean level 1/3 * 2 + 2/3 * 3 = 8/3:
    # animal 1 + 8/3 - 2, cat 2 + 8/3 - 8/3, dog 2 + 8/3 - 10/3, bulldog 3 + 8/3 - 14/3
    values = decoding.expected_costs(decoding.renormalized(ROW, TREE, [2, 4]), TREE, "path")
    assert [values[c] for c in (0, 2, 3, 4)] == [Fraction(5, 3), 2, Fraction(4, 3), 1]
    assert answer(ROW, [2, 4], "cost", cost="path") == 4
    assert chosen(answer(ROW, [2, 4], "coherent", threshold=0)) == [{0, 2, 3, 4}]
    assert chosen(answer(ROW, [2, 4], "coherent")) == [{0, 3, 4}]
    # {0, 3, 4}: cat 2/5, bulldog 1, so 2/15 + 2/3 = 4/5; {0, 2, 3, 4}: cat 2/3, bulldog 6/7, less
    assert chosen(answer(ROW, [2, 4], "expected-f")) == [{0, 3, 4}]
    # cat 1/3, bulldog 2/3
    assert chosen(answer(ROW, [2, 4], "conformal", threshold=Fraction(1, 2))) == [{0, 3, 4}]
    assert chosen(answer(ROW, [2, 4], "conformal", threshold=Fraction(1, 3))) == [{0, 2, 3, 4}]


def test_subset_answers_kept_classes_only():
    # all ends at dog itself: every leaf has 0, and the first leaf, plant, is not kept
    dog = tenths(10, 0, 0, 10, 0, 0)
    assert decoding.leaf([dog], TREE) == [1]
    assert decoding.subset([dog], TREE, [3], "leaf") == [4]
    assert decoding.subset([dog], TREE, [3], "leaf", terminals=[1, 5]) == [5]
    assert decoding.subset([dog], TREE, [3], "leaf", terminals=[1]) == [-1]
    # no mass in the allowed subtree
    for name in decoding.CLASS_DECODERS:
        assert decoding.subset([dog, ROW], TREE, [1], name) == [-1, 1]
    for name in decoding.SET_DECODERS:
        assert chosen(*decoding.subset([dog], TREE, [1], name)) == [set()]


def test_renormalized_is_the_conditional_distribution():
    for most_parents in (1, 3):
        for rng, parents, p, q in cases(10, most_parents=most_parents):
            allowed = rng.sample(range(len(parents)), rng.randint(1, len(parents)))
            ends = [
                t for t in range(len(parents)) if set(ancestors_or_self(parents, t)) & {*allowed}
            ]
            within = sum(q[t] for t in ends)
            found = decoding.renormalized(p, parents, allowed)
            for c in range(len(parents)):
                both = sum(q[t] for t in ends if c in ancestors_or_self(parents, t))
                assert found[c] * within == both
