"""What every decoder of the registry keeps to, whatever it decides."""

import copy
import pickle
import re
from pathlib import Path

import pytest
import torch

from hierlearn import DECODERS, Hierarchy
from hierlearn.decoding import make_decoder
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace, structure
from hierlearn.links import HeadOutput, SoftmaxLink

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])
DAG = Hierarchy.from_edges([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("c", "e")])
ONE = Hierarchy.from_paths(["only"])
FLAT = Hierarchy.from_parents([-1] * 5)
CHAIN = Hierarchy.from_paths(["a/b/c/d"])
OPTIONS = {"subset": {"allowed": [0]}, "conformal": {"threshold": 0.2}}
each_decoder = pytest.mark.parametrize("name", DECODERS)


def make(name, hierarchy=TREE):
    return make_decoder(hierarchy, name, **OPTIONS.get(name, {}))


def probabilities(hierarchy=TREE, rows=40, seed=0, scale=2.0):
    """Rows that add up, some of the mass ending at inner classes."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(rows, len(hierarchy), generator=generator)
    return SoftmaxLink(LabelSpace(hierarchy, range(len(hierarchy)))).probabilities(logits)


def is_closed(sets, hierarchy):
    return torch.equal(hierarchy.max_up(sets.to(torch.uint8)).bool(), sets)


def check_answer(decoder, p):
    answer, sets = decoder(p), decoder.sets(p)
    if decoder.answers == "class":
        assert answer.shape == p.shape[:1]
        assert answer.dtype == torch.int64
        if len(p):
            assert int(answer.min()) >= -1
            assert int(answer.max()) < p.shape[1]
    else:
        assert answer.shape == p.shape
        assert answer.dtype == torch.bool
    if decoder.answers != "class":
        assert is_closed(answer, decoder.hierarchy)
    assert sets.shape == p.shape
    assert sets.dtype == torch.bool
    assert is_closed(sets, decoder.hierarchy)
    return answer


@each_decoder
@pytest.mark.parametrize(
    "hierarchy", [TREE, ONE, FLAT, CHAIN], ids=["tree", "one", "flat", "chain"]
)
def test_answers_are_valid(name, hierarchy):
    decoder = make(name, hierarchy)
    for rows in (40, 1, 0):
        for scale in (0.0, 1.0, 100.0):
            check_answer(decoder, probabilities(hierarchy, rows, scale=scale))
    check_answer(decoder, torch.zeros(3, len(hierarchy)))  # everything ends at the root


@each_decoder
def test_a_dag_is_taken_or_refused(name):
    if DECODERS[name].needs_tree:
        wanted = (
            r"needs a tree, but a class of this DAG has several parents; use .*"
            r"argmax, leaf, coherent, expected-f, subset, stop or conformal$"
        )
        with pytest.raises(HierlearnError, match=wanted):
            make(name, DAG)
    else:
        assert not make(name, DAG).needs_tree
        check_answer(make(name, DAG), probabilities(DAG))


@each_decoder
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_precisions(name, dtype):
    p = probabilities().to(dtype)
    decoder = make(name)
    answer = check_answer(decoder, p)
    if dtype != torch.float64:
        # Widened bits are the same bits; float32 itself would be refused where they do not add up.
        wide = p.float()
        assert torch.equal(answer, decoder.decide(wide))


@each_decoder
def test_rows_do_not_know_each_other(name, monkeypatch):
    decoder, p = make(name), probabilities(rows=30)
    together = decoder(p)
    assert torch.equal(torch.cat([decoder(row[None]) for row in p]), together)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    assert torch.equal(decoder(p[order]), together[order])
    sets = decoder.sets(p)
    for size in (1, 64, 100):  # one row and a few rows a chunk
        monkeypatch.setattr(structure, "CHUNK", size)
        assert torch.equal(decoder(p), together)
        assert torch.equal(decoder.sets(p), sets)


@each_decoder
def test_no_graph_no_change_no_layout(name):
    decoder, p = make(name), probabilities()
    before = p.clone()
    answer = decoder(p.requires_grad_())
    assert not answer.requires_grad
    assert torch.equal(p, before)
    with torch.inference_mode():
        assert torch.equal(make(name)(p), answer)
    assert torch.equal(decoder(p.detach().t().contiguous().t()), answer)


@each_decoder
def test_the_output_of_a_head_is_read_like_its_probabilities(name):
    decoder = make(name)
    link = SoftmaxLink(LabelSpace(TREE, range(len(TREE))))
    logits = 2 * torch.randn(3, 20, 8, generator=torch.Generator().manual_seed(3))
    logits.requires_grad_()
    one, ensemble = (HeadOutput.from_logits(part, link) for part in (logits[0], logits))
    assert torch.equal(decoder(one), decoder(one.probabilities))
    mean = torch.stack([link.probabilities(member) for member in logits]).double().mean(dim=0)
    # In the log space of float32 the average rounds differently; the answers are the same here.
    assert torch.equal(decoder(ensemble), decoder(mean.float()))
    assert torch.equal(decoder.sets(ensemble), decoder.sets(mean.float()))
    pair = HeadOutput(one.log_p, one.log_not_p)  # without logits
    assert torch.equal(decoder(pair), decoder(one))
    assert one.log_p.requires_grad  # a loss still finds its graph


@each_decoder
def test_arrays_and_lists_are_read_like_tensors(name):
    decoder, p = make(name), probabilities(rows=5).double()
    for same in (p.numpy(), p.tolist(), p.numpy()[:, ::-1][:, ::-1]):
        assert torch.equal(decoder(same), decoder(p))
    for wrong, message in (
        ([["a", "b"]], "probabilities must be numbers, not <U1 of shape (1, 2)"),
        ([[0.1, 0.2], [0.3]], "probabilities must be (N, C), one column per class"),
    ):
        with pytest.raises(HierlearnError, match=re.escape(message)):
            decoder(wrong)


@each_decoder
def test_a_label_space_says_which_classes_are_terminal(name):
    space = LabelSpace(TREE, ["a/b", "f"])
    decoder = make(name, space)
    assert decoder.label_space is space
    assert decoder.hierarchy is TREE
    assert make(name, TREE).label_space == LabelSpace(TREE)
    check_answer(decoder, probabilities())


@each_decoder
def test_copies_and_pickles_decide_the_same(name):
    decoder, p = make(name), probabilities()
    for twin in (copy.deepcopy(decoder), pickle.loads(pickle.dumps(decoder))):
        assert torch.equal(twin(p), decoder(p))


@each_decoder
def test_probabilities_that_do_not_fit(name, monkeypatch):
    decoder, p = make(name), probabilities(rows=6)
    for wrong, message in (
        (p[:, :-1], "probabilities (6, 7) must be (N, 8)"),
        (p[0], "probabilities (8,) must be (N, 8)"),
        (p.long(), "probabilities must be floating point, not torch.int64"),
    ):
        with pytest.raises(HierlearnError, match=re.escape(message)):
            decoder(wrong)
    for value, shown in ((float("nan"), "nan"), (1.5, "1.5"), (-0.25, "-0.25"), (torch.inf, "inf")):
        broken = p.clone()
        broken[4, 3] = value
        message = f"row 4: the probability of 'a/b' is {shown}, outside [0, 1]; turn logits into"
        for size in (2**22, 1):
            monkeypatch.setattr(structure, "CHUNK", size)
            with pytest.raises(HierlearnError, match=re.escape(message)):
                decoder(broken)


@each_decoder
def test_rounding_may_leave_the_range(name):
    decoder, p = make(name), probabilities(rows=6, scale=0.0)
    p = torch.cat([p, torch.zeros(1, 8)])
    p[-1, 0] = 1 + 5e-6
    p[-1, 1] = -5e-6
    assert torch.equal(decoder(p), decoder(p.clamp(0, 1)))


@each_decoder
def test_probabilities_that_do_not_add_up(name, monkeypatch):
    decoder, p = make(name), probabilities(rows=6)
    if not decoder.needs_distribution:
        check_answer(decoder, torch.rand(6, 8, generator=torch.Generator().manual_seed(0)))
        return
    p[3] = torch.tensor([0.5, 0.25, 0.0, 0.125, 0.5, 0.125, 0.0, 0.0])
    p[5] = 1.0
    message = (
        "row 3: the children of 'a' sum to 0.625, more than its own 0.5; "
        "use a link whose probabilities add up, such as 'softmax'"
    )
    for size in (2**22, 1):
        monkeypatch.setattr(structure, "CHUNK", size)
        with pytest.raises(HierlearnError, match=re.escape(message)):
            decoder(p)
    p[3, 0] = 0.875
    with pytest.raises(HierlearnError, match=r"row 3: the top classes sum to 1\.125, more than 1;"):
        decoder(p)
    p[3, 0] = 0.625 - 5e-5  # rounding
    p[5] = 0.0
    check_answer(decoder, p)


def test_unknown_names_and_decoders_of_others():
    with pytest.raises(HierlearnError, match="unknown decoder 'agmax'; did you mean 'argmax'"):
        make_decoder(TREE, "agmax")
    with pytest.raises(HierlearnError, match="a decoder is a name or a Decoder, not 3"):
        make_decoder(TREE, 3)
    stop = make_decoder(TREE, "stop", threshold=0.3)
    assert make_decoder(TREE, stop) is stop
    with pytest.raises(
        HierlearnError, match="options threshold go with the name of a decoder; give"
    ):
        make_decoder(TREE, stop, threshold=0.4)
    message = rf"of another hierarchy \(8 classes, fingerprint {TREE.fingerprint[:8]}\) than this"
    with pytest.raises(HierlearnError, match=message):
        make_decoder(FLAT, stop)


def test_the_page_names_every_decoder():
    page = (Path(__file__).parents[2] / "docs" / "decoding.md").read_text()
    for name, make_one in DECODERS.items():
        dag = "no" if make_one.needs_tree else "yes"
        row = re.search(rf"^\| \[`{name}`\].*\| `{make_one.__name__}` \|.*$", page, re.MULTILINE)
        assert row, name
        assert row[0].split(" | ")[3] == ("yes" if make_one.needs_distribution else "no")
        if name not in ("cost", "subset"):  # which depend on an option
            assert row[0].endswith(f"{dag} |")


def test_options_that_a_decoder_does_not_take():
    for name, options, message in (
        ("argmax", {"x": 1}, "decoder argmax takes no options, but x was given"),
        ("stop", {"treshold": 1}, "unknown option of decoder stop 'treshold'; did you mean"),
        ("subset", {}, "decoder subset needs the option allowed"),
        ("subset", {"allowed": [0], "decoder": "stop", "beta": 1}, "option of decoder stop 'beta'"),
    ):
        with pytest.raises(HierlearnError, match=re.escape(message)):
            make_decoder(TREE, name, **options)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@each_decoder
def test_cuda_decides_as_the_cpu(name):
    hierarchies = (TREE, CHAIN) if DECODERS[name].needs_tree else (TREE, CHAIN, DAG)
    for hierarchy in hierarchies:
        decoder, p = make(name, hierarchy), probabilities(hierarchy, rows=500).double()
        assert decoder(p.cuda()).is_cuda
        assert torch.equal(decoder(p.cuda()).cpu(), decoder(p))
        assert torch.equal(decoder.sets(p.cuda()).cpu(), decoder.sets(p))
