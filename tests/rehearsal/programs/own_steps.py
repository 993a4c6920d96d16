"""Gradient descent written by hand: no optimizer of torch.optim ends its steps. With an argument the program says where they do."""

import sys

import plimsoll_rehearse
import torch

model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.Linear(4096, 1024)).cuda()


def train_step(rows):
    model(rows).pow(2).mean().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
            parameter.grad = None


for _ in range(8):
    train_step(torch.ones(64, 1024, device="cuda"))
    if len(sys.argv) > 1:
        plimsoll_rehearse.step()
