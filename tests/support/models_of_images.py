"""Small models of images as torchvision, timm and diffusers write them, in plain torch: what each adds to others is
there, once."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from models import Case
from torch import Tensor, nn

__all__ = ["IMAGE_CASES", "ConvNext", "MlpMixer", "ResNet", "UNet", "Vit"]

_CLASSES = 5


# --- diffusion --------------------------------------------------------------------------------------------------------


def embedding_of_times(times: Tensor, width: int) -> Tensor:
    """Sines and cosines of geometric frequencies."""
    frequencies = torch.exp(-math.log(10_000) * torch.arange(width // 2, device=times.device) / (width // 2))
    angles = times[:, None] * frequencies.to(times.dtype)
    return torch.cat([angles.cos(), angles.sin()], 1)


class ResBlock(nn.Module):
    """Group norm, SiLU and convolution, twice, with a shift of the channels by the time between them."""

    def __init__(self, width: int, out: int, time: int, groups: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(groups, width), nn.Conv2d(width, out, 3, padding=1)
        self.time = nn.Linear(time, out)
        self.norm2, self.conv2 = nn.GroupNorm(groups, out), nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Identity() if width == out else nn.Conv2d(width, out, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        hidden = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(hidden)))


class PixelAttention(nn.Module):
    """Attention of all pixels to all pixels."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.qkv = nn.GroupNorm(groups, width), nn.Conv1d(width, 3 * width, 1)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, c, height, width = x.shape
        qkv = self.qkv(self.norm(x).flatten(2)).unflatten(1, (3, self.heads, -1))
        query, key, value = qkv.transpose(-1, -2).unbind(1)
        attended = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        return x + self.out(attended).transpose(1, 2).reshape(n, c, height, width)


class UNet(nn.Module):
    """Predicts the noise of images at times between 0 and 1: one level down and up again, with a skip."""

    def __init__(self, channels: int = 2, width: int = 8, groups: int = 4) -> None:
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, 2 * width))
        self.first = nn.Conv2d(channels, width, 3, padding=1)
        self.down = ResBlock(width, width, 2 * width, groups)
        self.halved = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.attention = PixelAttention(width, 2, groups)
        self.doubled = nn.Conv2d(width, width, 3, padding=1)
        self.up = ResBlock(2 * width, width, 2 * width, groups)
        self.norm, self.last = nn.GroupNorm(groups, width), nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        time = self.time(embedding_of_times(x[:, 0, 0, 0].abs().clamp(max=1) * 1000, self.width))
        skip = self.down(self.first(x), time)
        deep = self.attention(self.halved(skip))
        up = self.doubled(F.interpolate(deep, scale_factor=2.0, mode="nearest"))
        return self.last(F.silu(self.norm(self.up(torch.cat([up, skip], 1), time))))


# --- torchvision ------------------------------------------------------------------------------------------------------


class Bottleneck(nn.Module):
    """Convolutions of 1, 3 and 1 pixels around a skip, which a stride shortens."""

    def __init__(self, width: int, inner: int, stride: int) -> None:
        super().__init__()
        out = 4 * inner
        self.conv1, self.bn1 = nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv2, self.bn2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv3, self.bn3 = nn.Conv2d(inner, out, 1, bias=False), nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or width != out:
            self.downsample = nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        skip = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += skip
        return self.relu(y)


class ResNet(nn.Module):
    """torchvision's ResNet-50 with two short stages, and its initial values."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1, self.relu = nn.Conv2d(3, 4, 7, 2, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(Bottleneck(4, 2, 1), Bottleneck(8, 2, 1))
        self.layer2 = nn.Sequential(Bottleneck(8, 4, 2))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(16, _CLASSES)
        for each in self.modules():
            if isinstance(each, nn.Conv2d):
                nn.init.kaiming_normal_(each.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(self.avgpool(self.layer2(self.layer1(x))), 1))


class EncoderBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.self_attention, self.dropout = nn.MultiheadAttention(width, 2, batch_first=True), nn.Dropout(0.0)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.0), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln_1(x)
        y, _ = self.self_attention(y, y, y, need_weights=False)
        x = self.dropout(y) + x
        return x + self.mlp(self.ln_2(x))


class Vit(nn.Module):
    """torchvision's vision transformer: a class token, learned positions, `nn.MultiheadAttention`."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.conv_proj = nn.Conv2d(3, width, 4, 4)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embedding = nn.Parameter(torch.empty(1, 17, width).normal_(std=0.02))
        self.layers, self.ln = nn.Sequential(EncoderBlock(width), EncoderBlock(width)), nn.LayerNorm(width, eps=1e-6)
        self.heads = nn.Linear(width, _CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv_proj(x).reshape(x.shape[0], -1, 16).permute(0, 2, 1)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], 1)
        return self.heads(self.ln(self.layers(x + self.pos_embedding))[:, 0])


# --- timm -------------------------------------------------------------------------------------------------------------


class LayerNorm2d(nn.LayerNorm):
    """Of the channels of each pixel."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 2, 3, 1)
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps).permute(0, 3, 1, 2)


class GlobalResponseNorm(nn.Module):
    """Of pixels' channels, last, each by the norm of all of its pixels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        norm = x.norm(p=2, dim=(1, 2), keepdim=True)
        normed = norm / (norm.mean(-1, keepdim=True) + 1e-6)
        return x + torch.addcmul(self.bias.view(1, 1, 1, -1), self.weight.view(1, 1, 1, -1), x * normed)


class ConvNextBlock(nn.Module):
    """A convolution of each channel, an MLP with a response norm, a scale of each channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv_dw, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width, eps=1e-6)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.grn = GlobalResponseNorm(4 * width)
        self.gamma = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.conv_dw(x).permute(0, 2, 3, 1))
        y = self.fc2(self.grn(F.gelu(self.fc1(y)))).permute(0, 3, 1, 2)
        return x + y.mul(self.gamma.reshape(1, -1, 1, 1))


class SqueezeExcite(nn.Module):
    """Weights of channels by the means of all channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv_reduce, self.conv_expand = nn.Conv2d(width, 2, 1), nn.Conv2d(2, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean((2, 3), keepdim=True)
        return x * self.conv_expand(F.silu(self.conv_reduce(mean))).sigmoid()


class ConvNext(nn.Module):
    """timm's ConvNeXt of two stages, with squeeze and excitation after the second one."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 4, 4), LayerNorm2d(width, eps=1e-6))
        self.stages = nn.Sequential(
            ConvNextBlock(width),
            LayerNorm2d(width, eps=1e-6),
            nn.Conv2d(width, 2 * width, 2, 2),
            ConvNextBlock(2 * width),
            SqueezeExcite(2 * width),
        )
        self.norm, self.fc = LayerNorm2d(2 * width, eps=1e-6), nn.Linear(2 * width, _CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.adaptive_avg_pool2d(self.stages(self.stem(x)), 1)
        return self.fc(self.norm(x).flatten(1))


class MixerBlock(nn.Module):
    """An MLP over tokens, then one over channels with a gate."""

    def __init__(self, width: int, tokens: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.tokens = nn.Sequential(nn.Linear(tokens, 12), nn.GELU(), nn.Linear(12, tokens))
        self.gate, self.out = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.out(F.glu(self.gate(self.norm2(x)), dim=-1))


class MlpMixer(nn.Module):
    """timm's MLP-Mixer."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, 4)
        self.blocks = nn.Sequential(MixerBlock(width, 16), MixerBlock(width, 16))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, _CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.stem(x).flatten(2).transpose(1, 2))).mean(1))


def _labelled(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 3, 16, 16, generator=generator), torch.randint(_CLASSES, (n,), generator=generator)


def _noisy(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 2, 8, 8, generator=generator), torch.randn(n, 2, 8, 8, generator=generator)


IMAGE_CASES = {
    "unet": Case(UNet, F.mse_loss, _noisy),
    "resnet": Case(ResNet, F.cross_entropy, _labelled),
    "vit": Case(Vit, F.cross_entropy, _labelled),
    "convnext": Case(ConvNext, F.cross_entropy, _labelled),
    "mixer": Case(MlpMixer, F.cross_entropy, _labelled),
}
