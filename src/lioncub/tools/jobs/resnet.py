"""A residual network for images of 32 x 32 pixels."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

GROUPS = 4


def norm(channels: int) -> nn.GroupNorm:
    # Not BatchNorm: its running mean and variance are no parameters, so that nothing would keep them the same on all
    # workers, and replicas that agree on every weight would still answer differently.
    return nn.GroupNorm(GROUPS, channels)


class ResidualBlock(nn.Module):
    """`relu(shortcut(x) + norm(conv(relu(norm(conv(x))))))`."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride=stride, padding=1, bias=False)
        self.norm1 = norm(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = norm(channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride=stride, bias=False), norm(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm2(self.conv2(functional.relu(self.norm1(self.conv1(x)))))
        return functional.relu(self.shortcut(x) + inner)


class ResNet(nn.Module):
    """Maps images `[batch, 3, 32, 32]` to logits `[batch, classes]`.

    Four stages of `blocks`, each with twice the channels of the one before at half its resolution. `stride` is the
    first convolution's: 2 saves three quarters of the work.
    """

    def __init__(self, *, width: int, blocks: int, stride: int, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=stride, padding=1, bias=False)
        self.stem_norm = norm(width)
        channels = [width * 2**stage for stage in range(4)]
        self.stages = nn.Sequential()
        for stage, (before, after) in enumerate(zip([width, *channels], channels, strict=False)):
            self.stages.append(ResidualBlock(before, after, stride=2 if stage else 1))
            self.stages.extend(ResidualBlock(after, after, stride=1) for _ in range(blocks - 1))
        self.head = nn.Linear(channels[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.stages(functional.relu(self.stem_norm(self.stem(x))))
        logits: Tensor = self.head(hidden.mean(dim=(2, 3)))
        return logits
