"""plimsoll says before a training run whether it fits, how fast it goes, and why.

>>> import plimsoll
>>> plan = plimsoll.estimate("llama-3.1-8b", on="8xmi300x", fsdp="full", micro_batch=1, seq=8192)
>>> plan.verdict
'fits'
"""
from ._calls import estimate, explain, export, export_formats, hardware, models, report, strategy_keys, version
from ._commands import Campaign, Gate, Search, Table, campaign, compare, fits, gate, search, sweep
from ._errors import BadInput, InternalError, PlimsollError, Refused
from ._rehearse import rehearse
from ._results import AliveGroup, Band, Bytes, Change, DearKernel, Estimate, Explanation, Export, Flops, Memory, Rank, Seconds, Time
from ._watch import Comparison, Watch, watch

__version__ = version()
__all__ = [
    "AliveGroup", "BadInput", "Band", "Bytes", "Campaign", "Change", "Comparison", "DearKernel", "Estimate", "Explanation", "Export", "Flops", "Gate",
    "InternalError", "Memory", "PlimsollError", "Rank", "Refused", "Search", "Seconds", "Table", "Time", "Watch", "campaign", "compare", "estimate",
    "explain", "export", "export_formats", "fits", "gate", "hardware", "models", "rehearse", "report", "search", "strategy_keys", "sweep", "version",
    "watch",
]
