"""Insists on a world of four."""

import torch

torch.distributed.init_process_group("nccl", rank=0, world_size=4)
