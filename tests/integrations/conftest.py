"""Before any test imports timm, lightning or transformers: torchvision may be of another build."""

from hierlearn.backbones.compiled import declare_operators

declare_operators()
