"""Values that programs branch on: what the host made is what it is after any operator, and what nobody computed is finite, positive and steady."""

import math

import torch
import torch.nn.functional as F
from torch.distributions import Categorical, Normal

torch.set_default_device("cuda")


def check_known():
    numbers = torch.arange(6)
    assert F.pad(numbers, (1, 1)).tolist() == [0, 0, 1, 2, 3, 4, 5, 0]
    assert numbers[1:].prod().item() == 120 and (-numbers).tolist()[1] == -1 and (numbers**2).tolist()[5] == 25
    assert numbers.repeat_interleave(2).tolist()[:4] == [0, 0, 1, 1]
    assert torch.repeat_interleave(numbers, torch.tensor([1, 2, 0, 0, 1, 1])).tolist() == [0, 1, 1, 4, 5]
    assert numbers.flip(0).sort()[0].tolist() == [0, 1, 2, 3, 4, 5] and numbers.clamp(1, 3).tolist() == [1, 1, 2, 3, 3, 3]
    assert torch.minimum(numbers, numbers.flip(0)).tolist() == [0, 1, 2, 2, 1, 0] and (numbers % 4).tolist() == [0, 1, 2, 3, 0, 1]
    assert numbers.float().new_tensor([1.5, 2]).tolist() == [1.5, 2.0] and numbers.tile(2).shape == (12,)
    assert numbers.view(2, 3).movedim(0, 1).contiguous().tolist() == [[0, 3], [1, 4], [2, 5]]
    assert torch.equal(numbers, numbers.clone()) and not torch.equal(numbers, numbers + 1)
    assert torch.tensor([1.5, -2.25]).abs().sum().item() == 3.75 and bool(torch.ones(4, 4).all())
    assert torch.unique(torch.tensor([3, 1, 3])).tolist() == [1, 3] and numbers.float().std().item() > 1.8


def check_beside():
    """Metrics in one vector: a loss that nobody computed beside counts that are known."""
    loss = (torch.randn(512, 512) @ torch.randn(512, 512)).sum()
    metrics = torch.zeros(4)
    metrics[0] += loss
    metrics[1] += torch.tensor([3, 4]).sum()
    metrics /= 2
    assert metrics[1].item() == 3.5 and metrics.clone()[2].item() == 0 and metrics.to(torch.float64)[1].item() == 3.5
    both = torch.stack([loss, torch.tensor(12.0)]) * 4
    assert both[1].item() == 48 and torch.cat([both, both])[3].item() == 48
    values = both.tolist()
    assert values[1] == 48 and math.isfinite(values[0]) and values[0] > 0


def check_drawn():
    """Of a matrix that was drawn there is a solution, of one that nobody computed it is not known."""
    right = torch.arange(4.0)
    left = torch.randn(4, 4)
    assert torch.allclose(left.cpu() @ torch.linalg.solve(left, right).cpu(), right.cpu(), atol=1e-2)
    unknown = (torch.randn(512, 512) @ torch.randn(512, 512))[:4, :4]
    assert torch.linalg.solve(unknown, right).sum().item() > 0


def check_choices():
    mask = torch.zeros(3, 4, dtype=torch.bool)
    mask[1, 2] = True
    mask[:, 0] = True
    assert mask.sum().item() == 4 and torch.zeros(3, 4)[mask].shape == (4,)
    timesteps = torch.linspace(1, 0, 5)
    assert (timesteps == timesteps[3]).nonzero().item() == 3
    assert sorted(torch.randperm(10).tolist()) == list(range(10))
    grids = torch.tensor([[1, 4, 6], [2, 2, 2]])
    assert grids.prod(-1).tolist() == [24, 8] and len(torch.zeros(32, 5).split(grids.prod(-1).tolist())) == 2
    ids = torch.randint(0, 50, (4, 8))
    assert 0 <= ids.min().item() and ids.max().item() < 50


def check_numbers_in_kernels():
    numbers = torch.arange(1, 5)
    assert (2 ** numbers).tolist() == [2, 4, 8, 16] and (2.0 ** numbers.half()).tolist() == [2, 4, 8, 16]
    assert torch.isin(3, numbers) and torch.bucketize(3, numbers).item() == 2 and torch.searchsorted(numbers, 5).item() == 4
    assert torch.linalg.inv(2 * torch.eye(3)).tolist() == (torch.eye(3) / 2).tolist() and torch.eye(4).norm() == 2
    assert torch.tensor([1, 2], device="cpu").sum() == 3  # the host's own numbers are its own afterwards


def check_layers():
    """A convolution by hand: 0+1+2 = 3, 1+2+3 = 6 …; the middle of four corners 0 to 3 is 1.5; what is added at places is added once."""
    signal, image = torch.arange(6.0).view(1, 1, 6), torch.arange(4.0).view(1, 1, 2, 2)
    assert F.conv1d(signal, torch.ones(1, 1, 3)).flatten().tolist() == [3, 6, 9, 12]
    assert F.conv_transpose1d(signal[..., :3], torch.ones(1, 1, 2)).flatten().tolist() == [0, 1, 3, 2]
    for corners in (True, False):
        assert F.grid_sample(image, torch.zeros(1, 1, 1, 2), align_corners=corners).item() == 1.5
    assert torch.zeros(3).index_add_(0, torch.tensor([0, 2, 2]), torch.tensor([1.0, 2, 3])).tolist() == [1, 0, 5]


def check_sparse():
    places, numbers = torch.tensor([[0, 1], [1, 0]]), torch.tensor([2.0, 3.0])
    assert torch.sparse_coo_tensor(places, numbers, (2, 2)).to_dense().tolist() == [[0, 2], [3, 0]]
    assert torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse().to_dense().tolist() == [[0, 2], [3, 0]]
    assert torch.sparse_coo_tensor(places[:, [0, 0]], numbers, (2, 2)).coalesce().values().tolist() == [5]


def check_large():
    """Up to 1 MiB, whatever else is that large on the host, which keeps no values of what is larger."""
    for rows in (255, 256):
        unknown = torch.nn.Linear(512, 1024)(torch.randn(rows, 512)).detach()
        assert (unknown == unknown).all() and 0 < unknown.min().item() < unknown.max().item() < 1, unknown.min()
    table = torch.arange(1 << 18, dtype=torch.float64, device="cpu").float()
    assert table.cuda()[12345].item() == 12345 and torch.ones(512, 512, device="cpu").cuda().sum().item() == 1 << 18
    weights = torch.rand(1 << 19, device="cpu")  # 2 MiB of data: drawn from, and half of it chosen
    assert torch.multinomial(weights, 8).shape == (8,) and 0.4 < (weights > 0.5).float().mean() < 0.6


@torch.jit.script
def scripted_zeros(rows: int):
    return torch.zeros([rows]) + torch.ones([rows])


def check_unknown(output, loss):
    assert torch.isfinite(loss) and loss > 0 and not torch.isnan(loss) and loss == loss and loss.item() == loss.item()
    assert math.isfinite(math.log(loss.item())) and 1 / loss.item() > 0
    assert torch.allclose(output, output) and not torch.isnan(output).any() and torch.isfinite(output @ output.T).all()
    assert Categorical(logits=output).sample().max().item() < output.shape[-1]
    Categorical(probs=output.softmax(-1)), Normal(output, output.exp())
    boxes = output.sigmoid()[:, :4]
    corners = torch.cat([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], -1)
    assert (corners[:, 2:] >= corners[:, :2]).all()
    weight = torch.nn.init.trunc_normal_(torch.empty(1024, 512))  # draws anew while a number lies too far out
    assert (weight.to(torch.float64) + 1).isfinite().all() and torch.where(weight > 1, weight, 0.0).shape == weight.shape
    assert len(set((output @ torch.ones(output.shape[-1], 32000)).argmax(-1).tolist())) == len(output)


def check_convergence():
    """Whoever asks on and on waits for a number to fall, in every step anew: each round has another that nobody computed."""
    layer, inputs, rounds = torch.nn.Linear(512, 1024), torch.randn(512, 512), 0
    while layer(inputs).detach().norm() > 1e-3:
        rounds += 1
    assert 256 < rounds < 300, rounds


model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.Linear(4096, 1024))
scale = torch.nn.Parameter(torch.tensor(2.5))  # a step moves it by little, and nobody computed by how much
optimizer, scaler = torch.optim.AdamW([*model.parameters(), scale]), torch.amp.GradScaler()
check_known()
check_beside()
check_drawn()
check_choices()
check_numbers_in_kernels()
check_layers()
if hasattr(torch.library, "get_kernel"):  # PyTorch 2.9 and later
    check_sparse()
check_large()
assert scripted_zeros(3).sum() == 3
for _ in range(5):
    assert 12 < scale.exp().item() < 12.5 and 2.4 < scale.norm().item() < 2.6
    output = scale * model(torch.randn(16, 1024))
    loss = F.cross_entropy(output, torch.randint(0, 1024, (16,)))
    check_unknown(output.detach(), loss.detach())
    check_convergence()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
