from ..shared import base

depth = base + 1
