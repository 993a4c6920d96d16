"""Trains to its end and leaves a thread behind that waits for what never comes, and a process that ended and was not asked how."""

import subprocess
import sys
import threading

import torch

subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1)"])
threading.Thread(target=threading.Event().wait, name="logger").start()
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(64, 1024, device="cuda")).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
