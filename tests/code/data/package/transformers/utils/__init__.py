from . import logging
from .auto_docstring import auto_docstring
from .generic import ModelOutput
