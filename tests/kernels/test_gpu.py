"""What only a GPU shows: large batches, bitwise equal runs, CUDA graphs, memory."""

import warnings

import pytest
import torch

from kernels.kernel_cases import (
    DEVICE,
    LAYOUTS,
    batch,
    kernel_loss,
    nan_filled_memory,
    needs_gpu,
    on_device,
    tree,
    value_and_gradient,
)
from tolerances import FLOAT32_SUMS, Tolerance

as_is_and_tiled = pytest.mark.parametrize("layout", LAYOUTS[:2], indirect=True)


@needs_gpu
@pytest.mark.parametrize(
    ("sizes", "rows"), [((10, 100, 1000, 8890), 600), ((7, 5000, 6001), 64), ((30000,), 33)]
)
def test_large_batches(sizes, rows):
    hierarchy = tree(sizes)
    data = on_device(*batch(hierarchy, rows))
    plain, fused = (kernel_loss(hierarchy, fused=f).to(DEVICE) for f in (False, True))
    expected, found = (value_and_gradient(loss, *data) for loss in (plain, fused))
    FLOAT32_SUMS.assert_close(found[0], expected[0])
    # The weight of a maximum sums thousands of classes in another order; entries are about 1e-7.
    Tolerance(rtol=1e-4, atol=1e-9).assert_close(found[1], expected[1])


@needs_gpu
@as_is_and_tiled
def test_every_run_is_bitwise_the_same(layout):
    hierarchy = tree((10, 100, 3000))
    data = on_device(*batch(hierarchy, 300, masked=True))
    with nan_filled_memory():
        runs = [value_and_gradient(kernel_loss(hierarchy).to(DEVICE), *data) for _ in range(3)]
    for value, gradient in runs[1:]:
        assert torch.equal(value, runs[0][0])
        assert torch.equal(gradient, runs[0][1])


@needs_gpu
@as_is_and_tiled
def test_the_host_never_waits_and_a_cuda_graph_replays(layout):
    hierarchy = tree((3, 20, 60))
    loss = kernel_loss(hierarchy).to(DEVICE)
    logits, targets, _ = batch(hierarchy, 50)
    x, y = logits.to(DEVICE).requires_grad_(), targets.to(DEVICE)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            x.grad = None
            loss(x, y).backward()
    torch.cuda.current_stream().wait_stream(side)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls this mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        x.grad = None
        loss(x, y).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    x.grad = None
    with torch.cuda.graph(graph):
        value = loss(x, y)
        value.backward()
    other, labels, _ = batch(hierarchy, 50, seed=1)
    with torch.no_grad():
        x.copy_(other)
    y.copy_(labels)
    graph.replay()
    plain = kernel_loss(hierarchy, fused=False)
    expected = value_and_gradient(plain, other, labels, upstream=1.0)
    FLOAT32_SUMS.assert_close((value.detach().cpu(), x.grad.cpu()), expected)


@needs_gpu
def test_two_hundred_steps_end_at_the_same_loss():
    hierarchy = tree((4, 16, 80))
    logits, targets, _ = on_device(*batch(hierarchy, 64))
    final = {}
    for fused in (False, True):
        torch.manual_seed(0)
        layer = torch.nn.Linear(100, 100).to(DEVICE)
        optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
        loss = kernel_loss(hierarchy, fused=fused, floor=0.1).to(DEVICE)
        for _ in range(200):
            optimizer.zero_grad()
            value = loss(layer(logits), targets)
            value.backward()
            optimizer.step()
        final[fused] = value.item()
    # Rounding differs and 200 steps amplify it.
    assert final[True] == pytest.approx(final[False], rel=1e-2)
    assert final[True] < 0.2


@needs_gpu
def test_memory_holds_one_gradient_and_little_more():
    hierarchy = tree((10, 100, 9890))
    x = torch.randn(4096, 10000, device=DEVICE, requires_grad=True)
    y = torch.zeros(4096, 10000, dtype=torch.bool, device=DEVICE)
    loss = kernel_loss(hierarchy).to(DEVICE)
    loss(x, y).backward()
    x.grad = None
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    loss(x, y).backward()
    assert torch.cuda.max_memory_allocated() - before < 1.03 * x.nbytes
