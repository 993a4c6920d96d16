"""plimsoll says before a training run whether it fits, how fast it goes, and why.

>>> import plimsoll
>>> plan = plimsoll.estimate("llama-3.1-8b", on="8xmi300x", fsdp="full", micro_batch=2, seq=8192)
>>> plan.verdict
'fits'
"""
from ._calls import estimate, explain, export, export_formats, hardware, models, report, strategy_keys, version
from ._errors import BadInput, InternalError, PlimsollError, Refused
from ._rehearse import rehearse
from ._results import AliveGroup, Band, Bytes, Change, DearKernel, Estimate, Explanation, Export, Flops, Memory, Rank, Seconds, Time
from ._watch import Comparison, Watch, watch

__version__ = version()
__all__ = [
    "AliveGroup", "BadInput", "Band", "Bytes", "Change", "Comparison", "DearKernel", "Estimate", "Explanation", "Export", "Flops", "InternalError",
    "Memory", "PlimsollError", "Rank", "Refused", "Seconds", "Time", "Watch", "estimate", "explain", "export", "export_formats", "hardware", "models", "rehearse", "report",
    "strategy_keys", "version", "watch",
]
