"""An instance of each layer of torch.nn that takes tensors of numbers, and how it is called with shared inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["CONTAINERS", "LAYERS", "OF_LATER_VERSIONS", "Bag", "Given", "Layer", "given", "new_layer"]


@dataclass(frozen=True)
class Given:
    """The inputs that layers share, by their axes.

    rows       samples, features (4 x 6); each row of `chances` adds up to 1
    series     samples, channels, steps (2 x 4 x 6)
    images     samples, channels, pixels (2 x 4 x 6 x 6)
    volumes    samples, channels, voxels (2 x 4 x 4 x 4 x 4)
    classes    of rows: integers below 6
    signs      of rows: 1 or -1
    words      integers below 6 (2 x 3)
    """

    rows: Tensor
    series: Tensor
    images: Tensor
    volumes: Tensor
    classes: Tensor
    signs: Tensor
    words: Tensor

    @property
    def chances(self) -> Tensor:
        return self.rows.softmax(1)

    def scaled(self, scale: Tensor) -> Given:
        """With other numbers, so that they have gradients."""
        return replace(
            self,
            rows=self.rows * scale,
            series=self.series * scale,
            images=self.images * scale,
            volumes=self.volumes * scale,
        )

    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(vars(self).values())


def given(dtype: torch.dtype = torch.float64) -> Given:
    generator = torch.Generator().manual_seed(3)
    shapes = (4, 6), (2, 4, 6), (2, 4, 6, 6), (2, 4, 4, 4, 4)
    rows, series, images, volumes = (torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes)
    signs = torch.tensor([1, -1, -1, 1], dtype=dtype)
    return Given(rows, series, images, volumes, torch.tensor([5, 0, 2, 2]), signs, torch.tensor([[1, 5, 0], [3, 3, 2]]))


Call = Callable[[Any, Given], Any]


@dataclass(frozen=True)
class Layer:
    """How a layer is made, and called."""

    make: Callable[[], nn.Module]
    call: Call


def _rows(layer: Any, x: Given) -> Any:
    return layer(x.rows)


def _series(layer: Any, x: Given) -> Any:
    return layer(x.series)


def _images(layer: Any, x: Given) -> Any:
    return layer(x.images)


def _volumes(layer: Any, x: Given) -> Any:
    return layer(x.volumes)


_OF_RANK = {1: _series, 2: _images, 3: _volumes}


def _of_classes(layer: Any, x: Given) -> Any:
    return layer(x.rows, x.classes)


def _of_numbers(layer: Any, x: Given) -> Any:
    return layer(x.rows, x.rows.detach().flip(0))


def _of_pairs(layer: Any, x: Given) -> Any:
    return layer(x.rows, x.rows.flip(0) * 2)


def _of_signed_pairs(layer: Any, x: Given) -> Any:
    return layer(x.rows, x.rows.flip(0) * 2, x.signs)


def _of_truths(layer: Any, x: Given) -> Any:
    return layer(x.rows.sigmoid(), (x.rows.detach().flip(0) > 0).to(x.rows.dtype))


def _of_triples(layer: Any, x: Given) -> Any:
    return layer(x.rows, x.rows.flip(0) * 2, x.rows.roll(1, 1))


def _sentences(x: Given) -> Tensor:
    """Samples, steps, features (2 x 6 x 4)."""
    return x.series.transpose(1, 2)


def _unpooled(rank: int) -> Call:
    def call(layer: Any, x: Given) -> Any:
        inputs = (x.series, x.images, x.volumes)[rank - 1]
        pool = getattr(nn.functional, f"max_pool{rank}d")
        return layer(*pool(inputs, 2, return_indices=True))

    return call


def _of_spoken(layer: Any, x: Given) -> Any:
    scores = x.rows[:, None].expand(4, 2, 6).log_softmax(-1)
    return layer(scores, x.words[:, :2] % 5 + 1, torch.tensor([4, 4]), torch.tensor([2, 1]))


def _classed(layer: Any, x: Given) -> Any:
    return layer(x.rows, x.classes).output


def _fractions(rank: int) -> Tensor:
    """Where fractional pools of two samples of four channels begin, instead of random numbers."""
    return torch.linspace(0, 0.9, 8 * rank, dtype=torch.float64).reshape(2, 4, rank)


# No layer draws random numbers, which would be others than torch's.
_PLAIN = {
    "CELU": {}, "ELU": {}, "GELU": {}, "GLU": {"dim": 1}, "Hardshrink": {}, "Hardsigmoid": {}, "Hardswish": {},
    "Hardtanh": {}, "Identity": {}, "LeakyReLU": {}, "LogSigmoid": {}, "LogSoftmax": {"dim": 1}, "Mish": {},
    "RReLU": {"lower": 0.2, "upper": 0.2}, "PReLU": {}, "ReLU": {},
    "ReLU6": {}, "SELU": {}, "SiLU": {}, "Sigmoid": {}, "Softmax": {"dim": 1},
    "Softmin": {"dim": 1}, "Softplus": {}, "Softshrink": {}, "Softsign": {}, "Tanh": {}, "Tanhshrink": {},
    "Threshold": {"threshold": 0.1, "value": 0.5}, "Flatten": {}, "Dropout": {"p": 0.0}, "AlphaDropout": {"p": 0.0},
    "FeatureAlphaDropout": {"p": 0.0}, "Linear": {"in_features": 6, "out_features": 5},
    "LayerNorm": {"normalized_shape": 6}, "RMSNorm": {"normalized_shape": 6},
    "Unflatten": {"dim": 1, "unflattened_size": (2, 3)},
}  # fmt: skip

_OF_IMAGES = {
    "Softmax2d": {}, "ChannelShuffle": {"groups": 2}, "CrossMapLRN2d": {"size": 2}, "LocalResponseNorm": {"size": 2},
    "GroupNorm": {"num_groups": 2, "num_channels": 4}, "PixelShuffle": {"upscale_factor": 2},
    "PixelUnshuffle": {"downscale_factor": 2}, "Unfold": {"kernel_size": 3},
    "Upsample": {"scale_factor": 2, "mode": "bilinear"}, "UpsamplingBilinear2d": {"scale_factor": 2},
    "UpsamplingNearest2d": {"scale_factor": 2},
    "FractionalMaxPool2d": {"kernel_size": 2, "output_size": 3, "_random_samples": _fractions(2)},
}  # fmt: skip

# Arguments of layers that are there for one, two and three axes of pixels.
_OF_RANKS: dict[str, dict[str, Any]] = {
    "AdaptiveAvgPool": {"output_size": 3},
    "AdaptiveMaxPool": {"output_size": 3},
    "AvgPool": {"kernel_size": 2},
    "BatchNorm": {"num_features": 4},
    "CircularPad": {"padding": 1},
    "ConstantPad": {"padding": 1, "value": 0.5},
    "Conv": {"in_channels": 4, "out_channels": 6, "kernel_size": 3, "padding": 1, "groups": 2},
    "ConvTranspose": {"in_channels": 4, "out_channels": 3, "kernel_size": 2, "stride": 2},
    "Dropout": {"p": 0.0},
    "InstanceNorm": {"num_features": 4, "affine": True},
    "LPPool": {"norm_type": 2, "kernel_size": 2},
    "MaxPool": {"kernel_size": 2},
    "ReflectionPad": {"padding": 1},
    "ReplicationPad": {"padding": 1},
    "ZeroPad": {"padding": 1},
}

_LOSSES: dict[str, tuple[dict[str, Any], Call]] = {
    "BCELoss": ({}, _of_truths),
    "BCEWithLogitsLoss": ({}, _of_truths),
    "CosineEmbeddingLoss": ({}, _of_signed_pairs),
    "CosineSimilarity": ({}, _of_pairs),
    "CrossEntropyLoss": ({"label_smoothing": 0.1}, _of_classes),
    "CTCLoss": ({}, _of_spoken),
    "GaussianNLLLoss": ({}, lambda layer, x: layer(x.rows, x.rows.detach().flip(0), x.rows.square() + 0.1)),
    "HingeEmbeddingLoss": ({}, lambda layer, x: layer(x.rows, x.signs[:, None])),
    "HuberLoss": ({}, _of_numbers),
    "KLDivLoss": ({"reduction": "batchmean"}, lambda layer, x: layer(x.rows.log_softmax(1), x.chances.detach())),
    "L1Loss": ({}, _of_numbers),
    "MSELoss": ({}, _of_numbers),
    "MarginRankingLoss": ({}, lambda layer, x: layer(x.rows[:, 0], x.rows[:, 1], x.signs)),
    "MultiLabelMarginLoss": ({}, lambda layer, x: layer(x.rows[:2, :3], x.words % 3)),
    "MultiLabelSoftMarginLoss": ({}, _of_truths),
    "MultiMarginLoss": ({}, _of_classes),
    "NLLLoss": ({}, lambda layer, x: layer(x.rows.log_softmax(1), x.classes)),
    "PairwiseDistance": ({}, _of_pairs),
    "PoissonNLLLoss": ({}, lambda layer, x: layer(x.rows, x.rows.detach().square())),
    "SmoothL1Loss": ({}, _of_numbers),
    "SoftMarginLoss": ({}, lambda layer, x: layer(x.rows[:, 0], x.signs)),
    "TripletMarginLoss": ({}, _of_triples),
    "TripletMarginWithDistanceLoss": ({}, _of_triples),
}

_WIDE = {"d_model": 4, "nhead": 2, "dim_feedforward": 8, "dropout": 0.0, "batch_first": True}

_OTHERS: dict[str, Layer] = {
    "AdaptiveLogSoftmaxWithLoss": Layer(lambda: nn.AdaptiveLogSoftmaxWithLoss(6, 6, [3]), _classed),
    "Bilinear": Layer(lambda: nn.Bilinear(6, 6, 3), _of_pairs),
    "Embedding": Layer(lambda: nn.Embedding(6, 4), lambda layer, x: layer(x.words)),
    "EmbeddingBag": Layer(lambda: nn.EmbeddingBag(6, 4), lambda layer, x: layer(x.words)),
    "Fold": Layer(lambda: nn.Fold((3, 2), 2), lambda layer, x: layer(x.series[..., :2])),
    "FractionalMaxPool3d": Layer(
        lambda: nn.FractionalMaxPool3d(2, output_size=2, _random_samples=_fractions(3)), _volumes
    ),
    **{
        f"{kind}Cell": Layer(lambda kind=kind: getattr(nn, f"{kind}Cell")(6, 3), _rows)  # type: ignore[misc]
        for kind in ("RNN", "GRU", "LSTM")
    },
    **{
        kind: Layer(
            lambda kind=kind: getattr(nn, kind)(4, 3, batch_first=True, bidirectional=True),  # type: ignore[misc]
            lambda layer, x: layer(_sentences(x))[0],
        )
        for kind in ("RNN", "GRU", "LSTM")
    },
    "MultiheadAttention": Layer(
        lambda: nn.MultiheadAttention(4, 2, batch_first=True), lambda layer, x: layer(*[_sentences(x)] * 3)
    ),
    "Transformer": Layer(
        lambda: nn.Transformer(num_encoder_layers=1, num_decoder_layers=1, **_WIDE),  # type: ignore[arg-type]
        lambda layer, x: layer(_sentences(x), _sentences(x)[:, :3]),
    ),
    "TransformerEncoderLayer": Layer(
        lambda: nn.TransformerEncoderLayer(**_WIDE),  # type: ignore[arg-type]
        lambda layer, x: layer(_sentences(x)),
    ),
    "TransformerEncoder": Layer(
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(**_WIDE), 2, enable_nested_tensor=False),  # type: ignore[arg-type]
        lambda layer, x: layer(_sentences(x)),
    ),
    "TransformerDecoderLayer": Layer(
        lambda: nn.TransformerDecoderLayer(**_WIDE),  # type: ignore[arg-type]
        lambda layer, x: layer(_sentences(x)[:, :3], _sentences(x)),
    ),
    "TransformerDecoder": Layer(
        lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(**_WIDE), 2),  # type: ignore[arg-type]
        lambda layer, x: layer(_sentences(x)[:, :3], _sentences(x)),
    ),
    **{
        f"MaxUnpool{rank}d": Layer(lambda rank=rank: getattr(nn, f"MaxUnpool{rank}d")(2), _unpooled(rank))  # type: ignore[misc]
        for rank in (1, 2, 3)
    },
}


def _made(name: str, options: dict[str, Any]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        layer: nn.Module = getattr(nn, name)(**options)
        return layer

    return make


LAYERS: dict[str, Layer] = {
    **{name: Layer(_made(name, options), _rows) for name, options in _PLAIN.items()},
    **{name: Layer(_made(name, options), _images) for name, options in _OF_IMAGES.items()},
    **{
        f"{name}{rank}d": Layer(_made(f"{name}{rank}d", options), call)
        for name, options in _OF_RANKS.items()
        for rank, call in _OF_RANK.items()
    },
    **{name: Layer(_made(name, options), call) for name, (options, call) in _LOSSES.items()},
    **_OTHERS,
}

# Classes that are no layers, or have another class's instances: lazy layers become the layers that they are named for.
CONTAINERS = {
    "Container", "DataParallel", "Module", "ModuleDict", "ModuleList", "NLLLoss2d", "ParameterDict", "ParameterList",
    "RNNBase", "RNNCellBase", "Sequential", "SyncBatchNorm",
}  # fmt: skip

# Layers that the oldest version of torch does not have yet.
OF_LATER_VERSIONS = {"LinearCrossEntropyLoss"}


def new_layer(name: str) -> nn.Module:
    """An instance, always with the same numbers, in double precision."""
    torch.manual_seed(5)
    return LAYERS[name].make().double()


class Bag(nn.Module):
    """Layers by name; each is called with the inputs times a number of its own, which is trained."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({name: new_layer(name) for name in names})
        self.scales = nn.ParameterDict({name: torch.tensor(0.9, dtype=torch.float64) for name in names})

    def forward(self, *tensors: Tensor) -> dict[str, Any]:
        inputs = Given(*tensors)
        return {name: LAYERS[name].call(layer, inputs.scaled(self.scales[name])) for name, layer in self.layers.items()}
