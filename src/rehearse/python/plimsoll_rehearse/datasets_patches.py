"""datasets: rows made up for a dataset that is not there (--synthetic-data)."""

import functools
import os

from . import journal
from .imports import after

ROWS = 4096
WORDS = "the ship leaves port when its line is above the water "


def synthetic_rows(datasets):
    text = WORDS * 400
    return datasets.Dataset.from_dict({"text": [text] * ROWS, "content": [text] * ROWS, "label": [0] * ROWS})


@after("datasets")
def make_up_rows(datasets):
    journal.version("datasets", datasets.__version__)
    if os.environ.get("PLIMSOLL_REHEARSE_SYNTHETIC") != "1":
        return
    load = datasets.load_dataset

    @functools.wraps(load)
    def load_dataset(path, *arguments, split=None, streaming=False, **options):
        try:
            return load(path, *arguments, split=split, streaming=streaming, **options)
        except Exception:  # whatever keeps it from being read: no network, no cache, no such name
            journal.replaced(f"the dataset {path}: {ROWS} made-up rows of text")
            rows = synthetic_rows(datasets)
            rows = rows.to_iterable_dataset() if streaming else rows
            return rows if split else datasets.DatasetDict({"train": rows, "validation": rows, "test": rows})

    datasets.load_dataset = load_dataset
