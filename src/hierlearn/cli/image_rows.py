"""Images for a trained model to predict on; labels are not needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hierlearn.datasets import Images
    from hierlearn.datasets.tables.stream import Chunk
    from hierlearn.pipeline import Pipeline

CHUNK = 1024  # images that are read at a time


class ImageStream:
    """Images, some at a time, named by their paths.

    Args:
        images: all of them.
        ids: of each image; by default its path.
        skip_broken: leave out images that cannot be read, and say so.

    Attributes:
        rows: how many there are.
        id_column: where the ids come from.
        keep: columns that are copied; none.
    """

    id_column = "path"
    keep: tuple[str, ...] = ()

    def __init__(
        self, images: Images, ids: Sequence[str] | None = None, *, skip_broken: bool = False
    ) -> None:
        self.images, self.ids = images, images.names if ids is None else ids
        self.rows = len(images)
        self.skip_broken = skip_broken

    def __iter__(self) -> Iterator[Chunk]:
        import numpy as np

        from hierlearn.cli.sources import skipped_note
        from hierlearn.datasets.images.images import find_broken
        from hierlearn.datasets.tables.stream import Chunk
        from hierlearn.terminal import complain

        reasons: dict[str, str] = {}
        done = 0
        for begin in range(0, len(self.images), CHUNK):
            rows = np.arange(begin, min(begin + CHUNK, len(self.images)))
            if self.skip_broken:
                broken = find_broken(self.images[rows])
                reasons |= {self.images.names[begin + row]: why for row, why in broken.items()}
                rows = np.delete(rows, list(broken))
            if len(rows):
                done += len(rows)
                lines = [int(row) + 1 for row in rows]
                yield Chunk(self.images[rows], lines, [self.ids[line - 1] for line in lines])
        if reasons:
            complain(skipped_note(reasons, len(self.images)))
        if not done:
            raise HierlearnError("no image could be read, so there is nothing to predict")


def open_image_stream(model: Pipeline, source: str, options: Mapping[str, Any]) -> ImageStream:
    """Open a folder, tar shards or a table of images."""
    from hierlearn.cli.model_rows import input_columns
    from hierlearn.cli.sources import check_not_given
    from hierlearn.datasets.images.read import is_images, read_unlabeled_images, table_images
    from hierlearn.datasets.labels import row_ids
    from hierlearn.datasets.tables.readers import open_table

    wrong = {name: options.get(name) for name in ("dataset_option", "rows", "data_dir", "keep")}
    check_not_given(source, "a source of images", wrong)
    skip = bool(options.get("skip_broken"))
    if is_images(source):
        wrong = {name: options.get(name) for name in ("id_column", "image", "delimiter")}
        check_not_given(source, "a source of images", wrong)
        return ImageStream(read_unlabeled_images(source), skip_broken=skip)
    file = open_table(source, options.get("delimiter"))
    images = table_images(file, input_columns(model, options)["image"])
    named = options.get("id_column")
    ids = None if named is None else row_ids(file.read([named]), named)
    return ImageStream(images, ids, skip_broken=skip)
