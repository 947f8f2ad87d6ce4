"""Stage 2: files and named datasets as Dataset(inputs, labels, hierarchy, splits, ids)."""

from hierlearn.datasets.arff import read_arff
from hierlearn.datasets.dataset import Dataset
from hierlearn.datasets.describe import describe
from hierlearn.datasets.gaf import GeneAnnotations, read_gaf
from hierlearn.datasets.image_folder import read_images
from hierlearn.datasets.image_table import read_image_table
from hierlearn.datasets.images import Images
from hierlearn.datasets.noise import with_hierarchy_noise, with_label_noise
from hierlearn.datasets.readers import READERS, open_table
from hierlearn.datasets.registry import DATASETS, load_dataset
from hierlearn.datasets.synthetic import make_synthetic
from hierlearn.datasets.table import Table
from hierlearn.datasets.tables import read_table, stream_table

__all__ = [
    "DATASETS",
    "READERS",
    "Dataset",
    "GeneAnnotations",
    "Images",
    "Table",
    "describe",
    "load_dataset",
    "make_synthetic",
    "open_table",
    "read_arff",
    "read_gaf",
    "read_image_table",
    "read_images",
    "read_table",
    "stream_table",
    "with_hierarchy_noise",
    "with_label_noise",
]
