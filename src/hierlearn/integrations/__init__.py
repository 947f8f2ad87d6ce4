"""Stage 13: losses, metrics and curricula in the training loops of other libraries.

    transformers   TrainerLoss, TrainerMetrics, LabelCollator, curriculum_callback, config_labels
    lightning      HierarchicalMixin, CurriculumCallback
    timm           TimmLoss

Each is imported by its own name, such as ``hierlearn.integrations.timm``; scikit-learn is in
``hierlearn.estimator``.
"""
