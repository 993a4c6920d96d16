"""Waits for a value that never comes."""

import torch


def wait_for_convergence(loss):
    while loss.item() < 1:
        pass


wait_for_convergence(torch.nn.Linear(8, 8, device="cuda")(torch.ones(8, 8, device="cuda")).sum())
