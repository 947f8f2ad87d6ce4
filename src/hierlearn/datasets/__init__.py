"""Stage 2: files and named datasets as Dataset(inputs, labels, hierarchy, splits, ids)."""

from hierlearn.datasets.dataset import Dataset
from hierlearn.datasets.describe import describe
from hierlearn.datasets.gaf import GeneAnnotations, read_gaf
from hierlearn.datasets.images import Images, read_image_table, read_images
from hierlearn.datasets.registry import DATASETS, load_dataset
from hierlearn.datasets.tables import READERS, open_table
from hierlearn.datasets.tables.arff import read_arff
from hierlearn.datasets.tables.read import read_table, stream_table
from hierlearn.datasets.tables.table import Table

__all__ = [
    "DATASETS",
    "READERS",
    "Dataset",
    "GeneAnnotations",
    "Images",
    "Table",
    "describe",
    "load_dataset",
    "open_table",
    "read_arff",
    "read_gaf",
    "read_image_table",
    "read_images",
    "read_table",
    "stream_table",
]
