"""accelerate: objects gathered from processes that are not there."""

from . import journal
from .imports import after


@after("accelerate")
def patch_accelerate(accelerate):
    journal.version("accelerate", accelerate.__version__)


@after("accelerate.utils.operations")
def trust_shapes(module):
    """Debug mode compares the shapes of all processes by gathering them."""
    if hasattr(module, "verify_operation"):
        module.verify_operation = lambda function: function
