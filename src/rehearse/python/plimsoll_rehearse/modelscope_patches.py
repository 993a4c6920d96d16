"""modelscope: folders of models that cannot be fetched."""

from . import hub
from .imports import after


@after("modelscope.hub.snapshot_download")
def give_snapshots(module):
    module.snapshot_download = hub.downloads(module.snapshot_download)
