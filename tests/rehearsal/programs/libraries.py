"""Linear algebra, Fourier transforms, recurrent networks and convolutions: what PyTorch asks cuSOLVER, cuFFT and cuDNN for."""

import torch

matrix = torch.nn.Parameter(torch.eye(64, device="cuda"))
recurrent, convolution = torch.nn.LSTM(8, 8).cuda(), torch.nn.Conv2d(3, 8, 3).cuda()
optimizer = torch.optim.SGD([matrix, *recurrent.parameters(), *convolution.parameters()])
for _ in range(4):
    values, vectors = torch.linalg.eigh(matrix)
    assert values.shape == (64,) and vectors.shape == (64, 64)
    solved = torch.linalg.solve(matrix, matrix) + torch.linalg.inv(matrix) + torch.linalg.qr(matrix)[0] + torch.linalg.cholesky(matrix)
    spectrum = torch.fft.rfft2(matrix)
    assert spectrum.shape == (64, 33) and torch.fft.irfft2(spectrum).shape == (64, 64)
    spread = torch.linalg.svdvals(matrix).sum() + torch.sparse.mm(torch.eye(64, device="cuda").to_sparse(), matrix).sum()
    loss = solved.sum() + spectrum.abs().sum() + spread + recurrent(torch.zeros(4, 2, 8, device="cuda"))[0].sum()
    (loss + convolution(torch.zeros(2, 3, 32, 32, device="cuda")).sum()).backward()
    optimizer.step()
    optimizer.zero_grad()
