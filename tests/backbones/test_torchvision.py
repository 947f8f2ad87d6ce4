"""A torchvision that was not built for this torch is named, and only what needs it fails."""

import subprocess
import sys

CODE = """
import sys, types, warnings
sys.path.insert(0, sys.argv[1])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from hierlearn.backbones.torchvision import broken_torchvision
    reason = broken_torchvision()
    assert broken_torchvision() == reason
print(len(caught), reason)
import importlib.util
print(importlib.util.find_spec("torchvision"))
from hierlearn import metrics
from hierlearn.backbones.timm import find_timm
for find in (find_timm, lambda: metrics.HitAtK(k=1)):
    try:
        find()
    except (ImportError, ValueError) as error:
        print(error)
"""


def test_it_is_ignored_with_a_warning(tmp_path):
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('operator x::nms does not exist')")
    info = tmp_path / "torchvision-9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torchvision\nVersion: 9.9\n")
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path)], capture_output=True, text=True, check=True
    )
    said, spec, *rest = done.stdout.splitlines()
    assert said.startswith("1 torchvision 9.9 does not load beside torch 2.")
    assert "operator x::nms does not exist); install the two from the same place" in said
    assert spec == "None"
    assert rest[0].startswith("image encoders need timm, and timm needs torchvision: torchvision")
    assert rest[1].startswith("metrics as classes need torchmetrics, which needs torchvision: tor")
