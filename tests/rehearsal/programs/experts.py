"""Routers, and everything else whose shapes hang on values that a program has: experts get equal shares, masks select what they mark."""

import os

import torch

tokens, experts, chosen = 512, 8, 2
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.distributed.init_process_group("nccl")
router = torch.nn.Linear(16, experts, device="cuda")
optimizer = torch.optim.SGD(router.parameters())
share = tokens * chosen // experts
for _ in range(4):
    logits = router(torch.ones(tokens, 16, device="cuda"))
    weights, places = torch.topk(torch.softmax(logits, -1), chosen, dim=-1)
    # transformers: a loop over experts
    mask = torch.nn.functional.one_hot(places, num_classes=experts).permute(2, 1, 0)
    assert [torch.where(mask[expert])[1].shape[0] for expert in range(experts)] == [share] * experts
    assert torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero().shape == (experts, 1)
    # transformers: rows sorted by their experts, and where each expert's end
    ordered = places.view(-1)[torch.argsort(places.view(-1))]
    ends = torch.cumsum(torch.histc(ordered.int(), bins=experts, min=0, max=experts - 1), 0, dtype=torch.int32)
    assert ends.tolist() == [share * (expert + 1) for expert in range(experts)] and ordered[ends - 1].tolist() == list(range(experts))
    # Megatron-core: a map, counts that ranks exchange, and permutations by it
    routing = torch.zeros_like(logits).int().scatter(1, places, 1).bool()
    counts = routing.sum(dim=0).long()
    everywhere = torch.empty(world * experts, dtype=torch.long, device="cuda")
    torch.distributed.all_gather_into_tensor(everywhere, counts)
    assert everywhere.cpu().tolist() == [share] * (world * experts)
    assert logits.masked_select(routing).shape == (tokens * chosen,) == logits[routing].shape
    assert torch.repeat_interleave(torch.arange(experts, device="cuda"), counts).shape == (tokens * chosen,)
    # labels, packed sequences, vocabularies
    labels = torch.tensor([[1, -100, 3], [-100, -100, 2]]).cuda()
    assert labels[labels != -100].tolist() == [1, 3, 2]
    labels[labels < 0] = 0
    assert labels.tolist() == [[1, 0, 3], [0, 0, 2]] and torch.unique(labels).tolist() == [0, 1, 2, 3]
    # memory that held values tells nothing of another tensor's
    stale = torch.full((4096,), -1, dtype=torch.long, device="cuda")
    del stale
    stale = torch.empty(4096, dtype=torch.long, device="cuda")
    assert stale.min() >= 0 and 0 < logits[logits.abs() > 0].numel() <= logits.numel()
    weights.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
