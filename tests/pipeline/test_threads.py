"""Which pipelines predict in several threads."""

import torch

from hierlearn import LabelSpace
from hierlearn.features import NumericPreprocessor
from hierlearn.lab.corpora.synthetic import make_synthetic
from hierlearn.links import make_link
from hierlearn.networks import InputSpec
from hierlearn.networks.build import NetworkSpec, build_network
from hierlearn.pipeline import Pipeline

SPACE = LabelSpace.of(make_synthetic(rows=10, features=3).hierarchy)


def pipeline_of(spec, preprocessor=None):
    network = torch.nn.Linear(3, len(SPACE)) if spec is None else build_network(spec, SPACE)
    link = make_link(SPACE, "softmax")
    return Pipeline(SPACE, network, link, preprocessor=preprocessor, network_spec=spec)


def test_only_light_networks_of_our_own_run_in_several_threads():
    spec = NetworkSpec("mlp", InputSpec.numbers(3))
    count = torch.get_num_threads()
    step = NumericPreprocessor().fit([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])
    assert pipeline_of(spec).worker_count == count
    assert pipeline_of(spec, step).worker_count == count
    assert pipeline_of(None).worker_count == 0  # a module that was passed in

    class Mine(NumericPreprocessor):
        pass

    assert pipeline_of(spec, Mine()).worker_count == 0
