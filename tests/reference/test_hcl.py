"""HCL end to end: examples worked out by hand."""

import math

from reference.hcl import hcl
from reference.loss_examples import log
from tolerances import FLOAT64


def test_hcl_by_hand():
    # a chain 0 > 1, and 2 beside 0. Base 2. sigmoid(log a) = a / (1 + a).
    parents = [[], [0], []]
    logits = [[log(1), log(3), log(7)], [log(3), -log(3), -log(3)]]
    targets = [[1, 1, 0], [1, 0, 0]]
    # row 1: p = 1/2 3/4 7/8 -> -log2: 1, log2 4/3, log2 8 = 3; errors 1 (p = 1/2), 0, 1
    # row 2: p = 3/4 1/4 1/4 -> log2 4/3 three times; no error
    a = math.log2(4 / 3)  # 0.415
    # levels: class 1 takes the maximum of all: row 1: 3, row 2: a; its error in row 1 is then 1
    out = hcl(logits, targets, parents, log_base=2, reduction="none")
    assert out["class_losses"] == FLOAT64.approx([1 + a, 3 + a, 3 + a])
    assert out["e_h"] == 3.0
    # thresh 3 + 3 = 6; sorted 1.415, 3.415, 3.415: 1.415 <= 6; 4.83 <= 5; 8.245 > 4: drop class 2
    assert out["selected"] == [True, True, False]
    assert out["loss"] == [FLOAT64.approx([1.0, 3.0, 0.0]), FLOAT64.approx([a, a, 0.0])]
    assert out["l_h"] == FLOAT64.approx(7 + 3 * a)
    assert out["l_hc"] == FLOAT64.approx(4 + 2 * a)  # max(4.83, 3 - 2 + 3 = 4)
    out = hcl(logits, targets, parents, log_base=2, floor=0.5, reduction="sum")
    assert out["loss"] == FLOAT64.approx(4 + 2 * a + 0.5 * (3 + a))
    assert out["l_hc"] == FLOAT64.approx(max(4 + 2 * a + 0.5 * (3 + a), 3 - 2.5 + 3))
    # ancestors: class 1 sees class 0 only: row 1: max(a, 1) = 1, its error 1
    out = hcl(logits, targets, parents, log_base=2, scope="ancestors")
    assert out["class_losses"] == FLOAT64.approx([1 + a, 1 + a, 3 + a])
    # thresh 6: 1.415 <= 6, 2.83 <= 5, 6.245 > 4
    assert out["loss"] == FLOAT64.approx((2 + 2 * a) / 6)
    # HCL-CL: class 1 has a + a = .83, e = 2, thresh 5: .83, 2.245 <= 4, 5.66 > 3
    out = hcl(logits, targets, parents, log_base=2, scope=None, reduction="sum")
    assert out["e_h"] == 2.0
    assert out["loss"] == FLOAT64.approx(1 + 3 * a)
    # HCL-Hier: nothing is dropped
    out = hcl(logits, targets, parents, log_base=2, curriculum=None, reduction="sum")
    assert out["loss"] == FLOAT64.approx(7 + 3 * a)
    # means: losses .7075, 1.7075, 1.7075, e_h 1.5, thresh 4.5: .71 <= 4.5, 2.4 <= 3.5, 4.12 > 2.5
    out = hcl(logits, targets, parents, log_base=2, normalize="mean", reduction="sum")
    assert out["selected"] == [True, True, False]
    assert (out["e_h"], out["l_h"]) == FLOAT64.approx((1.5, (7 + 3 * a) / 2))
    assert out["l_hc"] == FLOAT64.approx(max((4 + 2 * a) / 2, 3 - 2 + 1.5))
    assert out["loss"] == FLOAT64.approx(4 + 2 * a)
    # a threshold of 1: 1.415 > 1, nothing is selected; one of 100: everything
    assert hcl(logits, targets, parents, log_base=2, threshold=1.0)["selected"] == [False] * 3
    assert hcl(logits, targets, parents, log_base=2, threshold=100.0)["selected"] == [True] * 3


def test_hcl_mask():
    # class 2 of row 1 unknown: it neither binds class 1 (now max(a, 1) = 1) nor counts
    parents = [[], [0], []]
    logits = [[log(1), log(3), log(7)], [log(3), -log(3), -log(3)]]
    targets = [[1, 1, 0], [1, 0, 0]]
    mask = [[True, True, False], [True, True, True]]
    a = math.log2(4 / 3)
    out = hcl(logits, targets, parents, log_base=2, mask=mask)
    assert out["class_losses"] == FLOAT64.approx([1 + a, 1 + a, a])
    assert out["e_h"] == 2.0
    # thresh 5; sorted a = .415 <= 5, 1.83 <= 4, 3.245 > 3
    assert out["selected"] == [True, False, True]
    assert out["loss"] == FLOAT64.approx((1 + 2 * a) / 5)  # five known entries
    nothing = [[False] * 3] * 2
    assert hcl(logits, targets, parents, mask=nothing)["loss"] == 0.0
    assert hcl([], [], parents)["loss"] == 0.0
