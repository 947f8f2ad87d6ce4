"""A plan says what was asked for; what it names is checked at once."""

import json

import pytest

from hierlearn.errors import HierlearnError
from hierlearn.training import Plan


def test_plans_are_plain_values():
    plan = Plan(loss="hcl", loss_options={"floor": 0.2}, settings={"epochs": 3})
    assert Plan(**json.loads(json.dumps(plan.to_dict()))) == plan


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"recipe": "maxx"}, "unknown recipe 'maxx'; did you mean 'max'"),
        ({"network": "mlpp"}, "unknown network 'mlpp'; did you mean 'mlp'"),
        ({"decoder": "leave"}, "unknown decoder 'leave'"),
        ({"valid_fraction": 1.0}, r"valid_fraction must be in \[0, 1\), not 1.0"),
        (
            {"loss": "hcl-paper", "loss_options": {"flor": 1}},
            "unknown option of hcl-paper 'flor'; did you mean 'floor'",
        ),
        (
            {"network": "mlp", "network_options": {"widht": 8}},
            "unknown option of network mlp 'widht'; did you mean 'width'",
        ),
        (
            {"decoder": "stop", "decoder_options": {"treshold": 0.5}},
            "unknown option of decoder stop 'treshold'; did you mean 'threshold'",
        ),
        (
            {"decoder": "leaf", "decoder_options": {"x": 1}},
            "decoder leaf takes no options, but x was given",
        ),
        ({"loss_options": {"floor": 0.1}}, "loss_options needs a loss; name it with loss="),
        ({"settings": {"epoch": 3}}, "unknown setting 'epoch'; did you mean 'epochs'"),
    ],
)
def test_what_is_refused(values, message):
    with pytest.raises(HierlearnError, match=message):
        Plan(**values)
