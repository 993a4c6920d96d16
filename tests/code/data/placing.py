# What moves elements: one small network per group, so that each is held against what PyTorch allocates.
import torch
import torch.nn as nn
import torch.nn.functional as F


def turned(net, x):
    return x.flip(1) + torch.roll(x, shifts=(1, 2), dims=(1, 2))


def repeated(net, x):
    rows = x[:, :1].repeat(1, x.shape[1], 1)
    return rows + net.token.repeat(x.shape[0], x.shape[1], 1) + x[:, ::2].repeat_interleave(2, dim=1)


def stepped(net, x):
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.cat((-odd, even), dim=-1) + x[:, ::4].repeat_interleave(4, dim=1)


def assigned(net, x):
    y = torch.zeros_like(x)
    y[:, 1:] = x[:, :-1]
    y[..., 0] = 1.0
    return y + x


def assigned_mask(net, x):
    y = net.second(x)
    y[x > 1] = 0
    return y


def padded(net, x):
    y = F.pad(x, (0, 0, 1, 0))[:, :-1]
    return y + F.pad(x, (2, 2, 3, 3))[:, 3:-3, 2:-2]


def padded_by_itself(net, x):
    return F.pad(x, (1, 1), mode="replicate")[..., 2:] + F.pad(x, (2, 0), mode="reflect")[..., :-2]


def gathered(net, x):
    places = torch.arange(x.shape[1], device=x.device).flip(0)
    whole = places[None, :, None].expand(x.shape)
    return x.gather(1, whole) + x.index_select(1, places)


def scattered(net, x):
    places = torch.zeros(x.shape, dtype=torch.long, device=x.device)
    total = torch.zeros_like(x).scatter_add(1, places, net.second(x))
    return total + torch.zeros_like(x).index_add_(1, places[0, :, 0], x)


def indexed(net, x):
    table = net.table
    places = torch.arange(x.shape[1], device=x.device)
    both = (places[:, None] - places[None, :]).abs().view(-1)
    bias = table[both].view(x.shape[1], x.shape[1], -1).permute(2, 0, 1)
    return (x @ x.transpose(1, 2) + bias.sum(0)) @ x + x[:, places]


def windows(net, x):
    return x.unfold(1, 4, 4).mean(-1).repeat_interleave(4, dim=1) + x


def overlapped(net, x):
    """Chunks of 16 rows that begin every 8: elements lie in several of them."""
    batch, length, width = x.shape
    steps = x.stride()
    chunks = x.as_strided(size=(batch, length // 8 - 1, 16, width), stride=(steps[0], 8 * steps[1], steps[1], steps[2]))
    return (chunks * chunks).sum(2)


def strided(net, x):
    """Every other row, as a view of its own."""
    batch, length, width = x.shape
    return x.as_strided((batch, length // 2, width), (x.stride(0), 2 * width, 1)) * 2


def contracted(net, x):
    heads = x.view(x.shape[0], x.shape[1], 4, -1)
    scores = torch.einsum("bqhd,bkhd->bhqk", heads, heads)
    return torch.einsum("bhqk,bkhd->bqhd", scores, heads).flatten(2) + torch.einsum("bsd,de->bse", x, net.square)


def multiplied(net, x):
    return torch.matmul(x, net.square) + (net.square @ x.transpose(1, 2)).transpose(1, 2)


def grids(net, x):
    rows, columns = torch.meshgrid(torch.arange(4.0), torch.linspace(0, 1, 3), indexing="ij")
    steps = [each.item() for each in torch.linspace(0, 0.5, 5)]
    sizes = torch.tensor([[2, 3], [4, 1]]).prod(-1).cumsum(0).tolist()
    first = x[:, : sizes[0]]
    return x * steps[2] + first.sum(1, keepdim=True) * float(torch.arange(4).max()) + (rows + columns).to(x.device)[0, 0]


GROUPS = {function.__name__: function for function in (
    turned, repeated, stepped, assigned, assigned_mask, padded, padded_by_itself, gathered, scattered, indexed, windows,
    overlapped, strided, contracted, multiplied, grids)}


class Placing(nn.Module):
    def __init__(self, group, width=256, vocabulary=512):
        super().__init__()
        self.group = GROUPS[group]
        self.embedding = nn.Embedding(vocabulary, width)
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.table = nn.Parameter(torch.zeros(512, 4))
        self.square = nn.Parameter(torch.zeros(width, width))
        self.head = nn.Linear(width, 64)

    def forward(self, ids, targets):
        x = self.group(self, self.first(self.embedding(ids)))
        return ((self.head(x) - 1.0) ** 2).mean()
