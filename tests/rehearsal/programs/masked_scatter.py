"""Image features put into text embeddings, as every vision language model does: a mask of a row an element, expanded over 2048 columns, whose
backward pass selects what it has scattered."""

import torch

ROWS = 496
embedding, projection = torch.nn.Embedding(1000, 2048).cuda(), torch.nn.Linear(64, 2048).cuda()
optimizer = torch.optim.SGD([*embedding.parameters(), *projection.parameters()], 0.1)
ids = torch.ones(2, 600, dtype=torch.long)
ids[0, 5:261] = ids[1, 5:245] = 5  # 256 + 240 rows
ids = ids.cuda()
for _ in range(6):
    texts, images = embedding(ids), projection(torch.randn(ROWS, 64, device="cuda"))
    texts.masked_scatter((ids == 5).unsqueeze(-1).expand_as(texts), images).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
