# What models of code are made of beside plain operators: parts that may be empty, weights that are parametrized, gradients of one's own,
# systems of equations, complex tables. One small network per group, so that each is held against what PyTorch allocates.
import torch
import torch.nn as nn
import torch.nn.functional as F


def empty_parts(net, x):
    turned, passed = x[..., :256], x[..., 256:]
    return torch.cat((turned * 2, passed), dim=-1) + torch.cat((x[:, :0], x), dim=1)


def row_major_casts(net, x):
    heads = x.view(x.shape[0], x.shape[1], 4, -1).transpose(1, 2)
    wide = heads.to(torch.float32, memory_format=torch.contiguous_format)
    again = heads.contiguous(memory_format=torch.contiguous_format)
    return (wide * again).transpose(1, 2).flatten(2)


def parametrized(net, x):
    return net.windowed(x.transpose(1, 2)).transpose(1, 2)[:, : x.shape[1]]


def solved(net, x):
    blocks = x.view(-1, 64, 256).float()
    system = (blocks @ blocks.transpose(1, 2)).tril(-1)
    return torch.linalg.solve_triangular(system, blocks, upper=False, unitriangular=True).reshape(x.shape)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        y = x * torch.sigmoid(x)
        ctx.save_for_backward(x, y)
        ctx.factor = factor
        return y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return (grad * x + y) * ctx.factor, None


def own_gradient(net, x):
    return Doubled.apply(net.second(x), 2.0) + Doubled.apply(x, 0.5)


class Stopped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scores):
        return x * scores

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def no_gradient(net, x):
    places = torch.zeros(x.shape[0], x.shape[1], 4, dtype=torch.long, device=x.device)
    scores = net.second(x).gather(-1, places).sum(-1, keepdim=True)
    return Stopped.apply(x, scores)


def complex_tables(net, x):
    angles = torch.arange(x.shape[1], device=x.device)[:, None] * net.frequencies
    table = torch.polar(torch.ones_like(angles), angles) * 1.5
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * table).flatten(2).type_as(x)


def dropped_in_place(net, x):
    return F.dropout(net.second(x), 0.1, training=True, inplace=True) + net.dropped(net.third(x))


def padded_modules(net, x):
    return net.shifted(x) + net.framed(x)[:, 1:-1, 1:-1]


def ellipses(net, x):
    heads = x.view(x.shape[0], 4, -1, 4, 64)
    scores = torch.einsum("...qhd,...khd->...hqk", heads, heads)
    return torch.einsum("...hqk,...khd->...qhd", scores, heads).flatten(3).view(x.shape)


def broadcast_bias(net, x):
    rows = x.reshape(-1, 4, 64).permute(1, 0, 2)
    return torch.baddbmm(net.biases[:, None, :], rows, net.matrices).transpose(0, 1).reshape(x.shape)


def spans_hidden(net, x):
    y = net.second(x)
    hidden = torch.tensor([[at % 4 == 0 for at in range(x.shape[1])] for _ in range(x.shape[0])], device=x.device)
    y[hidden] = net.token.to(y.dtype)
    return y


def folded(net, x):
    image = x.view(x.shape[0], 64, 32, 32)
    columns = F.unfold(image, kernel_size=2, stride=2)
    return F.fold(columns * 2, (32, 32), kernel_size=2, stride=2).view(x.shape)


def wide_sums(net, x):
    mean = x.to(torch.bfloat16).sum(-1, keepdim=True, dtype=torch.float32)
    return x + mean.to(x.dtype) + torch.nan_to_num(net.second(x)) + torch.erfinv(net.third(x))


def labelled(net, x):
    steps = F.log_softmax(x[..., :32], dim=-1, dtype=torch.float32).transpose(0, 1)
    targets = torch.ones(x.shape[0], 8, dtype=torch.long, device=x.device)
    counts = (targets != 0).sum(-1)
    lengths = torch.ones(x.shape[:2], dtype=torch.long, device=x.device).sum(-1)
    chosen = targets.masked_select(targets != 0)
    with torch.backends.cudnn.flags(enabled=False):
        loss = F.ctc_loss(steps, chosen, lengths, counts, blank=0, reduction="mean")
    return x + loss


GROUPS = {function.__name__: function for function in (
    empty_parts, row_major_casts, parametrized, solved, own_gradient, no_gradient, complex_tables, dropped_in_place, padded_modules, ellipses,
    broadcast_bias, spans_hidden, folded, wide_sums, labelled)}


class Structures(nn.Module):
    def __init__(self, group, width=256, vocabulary=512):
        super().__init__()
        self.group = GROUPS[group]
        self.embedding = nn.Embedding(vocabulary, width)
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.third = nn.Linear(width, width)
        self.dropped = nn.Dropout(0.1, inplace=True)
        self.windowed = nn.utils.parametrizations.weight_norm(nn.Conv1d(width, width, 4, padding=2), name="weight", dim=2)
        self.shifted = nn.ZeroPad2d((0, 0, 1, -1))
        self.framed = nn.ConstantPad2d(1, 0.5)
        self.matrices = nn.Parameter(torch.zeros(4, 64, 64))
        self.biases = nn.Parameter(torch.zeros(4, 64))
        self.token = nn.Parameter(torch.zeros(width))
        self.register_buffer("frequencies", torch.linspace(0, 1, width // 2))
        self.head = nn.Linear(width, 64)

    def forward(self, ids, targets):
        x = self.group(self, self.first(self.embedding(ids)))
        return ((self.head(x) - 1.0) ** 2).mean()
