# Operators of images and sequences of channels: one small network per group, so that each is held against what PyTorch allocates.
import torch
import torch.nn as nn
import torch.nn.functional as F


class Images(nn.Module):
    """Of a group's modules, on images [batch, 32, 32, 32]."""

    def __init__(self, group, width=32, vocabulary=512):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.body = GROUPS[group](width)
        self.head = nn.Linear(width, 64)

    def forward(self, ids, targets):
        x = self.embedding(ids).transpose(1, 2).contiguous().view(ids.shape[0], -1, 32, 32)
        x = self.body(x)
        return ((self.head(x.flatten(2).mean(-1)) - 1.0) ** 2).mean()


class Lambda(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Sequences(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv1d(width, width, kernel_size=3, padding=1)
        self.second = nn.Conv1d(width, width, kernel_size=4, groups=width, padding=3, bias=False)

    def forward(self, x):
        x = x.flatten(2)
        return F.silu(self.second(self.first(x))[..., : x.shape[-1]])


class Upsampled(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class Shuffled(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, 4 * width, 1)
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, x):
        return F.pixel_unshuffle(self.shuffle(self.conv(x)), 2)[:, : x.shape[1]]


class Sampled(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.places = nn.Parameter(torch.zeros(1, 16, 16, 2))

    def forward(self, x):
        return F.grid_sample(x.float(), self.places.expand(x.shape[0], -1, -1, -1), align_corners=False)


GROUPS = {
    "convolutions": lambda width: nn.Sequential(
        nn.Conv2d(width, width, 3, padding=1), nn.ReLU6(), nn.Conv2d(width, width, (1, 3), stride=(1, 2), padding=(0, 1))),
    "depthwise": lambda width: nn.Sequential(nn.Conv2d(width, width, 7, padding=3, groups=width), nn.Mish(), nn.Conv2d(width, width, 1, bias=False)),
    "sequences": Sequences,
    "group_norm": lambda width: nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.GroupNorm(1, width, affine=False)),
    "batch_norm": lambda width: nn.Sequential(nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
    "pools": lambda width: nn.Sequential(nn.MaxPool2d(3, stride=2, padding=1), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1)),
    "adaptive_pools": lambda width: nn.Sequential(nn.AdaptiveAvgPool2d((7, 7)), nn.Upsample(size=(9, 9), mode="bilinear")),
    "upsampled": Upsampled,
    "bicubic": lambda width: Lambda(lambda x: F.interpolate(x, size=(24, 24), mode="bicubic", align_corners=False)),
    "shuffled": Shuffled,
    "sampled": Sampled,
    "columns": lambda width: Lambda(lambda x: F.unfold(x, 4, stride=4).view(x.shape[0], x.shape[1], -1)),
}
