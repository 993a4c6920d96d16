"""Wants attention that is not installed."""

import torch  # noqa: F401
from flash_attn import flash_attn_func  # noqa: F401
