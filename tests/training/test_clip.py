"""Stacked models are clipped each by itself, as torch clips a model alone."""

import pytest
import torch
from torch import nn

from hierlearn.training.clip import clip_members


@pytest.mark.parametrize("limit", [1e-3, 0.5, 2.0, 100.0])
def test_every_member_is_clipped_as_alone(limit):
    torch.manual_seed(0)
    stacked = [nn.Parameter(torch.randn(3, 4, 2)), nn.Parameter(torch.randn(3, 5))]
    scales = torch.tensor([0.1, 1.0, 50.0])  # members far apart
    for parameter in stacked:
        shape = (3, *[1] * (parameter.dim() - 1))
        parameter.grad = torch.randn_like(parameter) * scales.view(shape)
    alone = []
    for member in range(3):
        parameters = [nn.Parameter(parameter.data[member]) for parameter in stacked]
        for one, parameter in zip(parameters, stacked, strict=True):
            one.grad = parameter.grad[member].clone()
        nn.utils.clip_grad_norm_(parameters, limit)
        alone.append(parameters)
    clip_members([*stacked, nn.Parameter(torch.zeros(3))], limit)  # one without a gradient
    for member, parameters in enumerate(alone):
        for one, parameter in zip(parameters, stacked, strict=True):
            torch.testing.assert_close(parameter.grad[member], one.grad)
