# A package in the shape of transformers, in our own words: what the loader and the mechanisms are tested with where no wheel is.
from typing import TYPE_CHECKING

__version__ = "0.0"

if TYPE_CHECKING:
    from .models import *
else:
    import sys

    sys.modules[__name__] = None
