"""Which layers of a model are cut, and why others are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import joinsum
import pytest
import torch
from found_layers import found
from joinsum.ist.layers.discovery import find_layers
from joinsum.ist.layers.hidden_layers import cut_tensors
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """A basic or bottleneck block of a ResNet."""

    def __init__(self, channels: int, out: int, stride: int = 1, bottleneck: bool = False) -> None:
        super().__init__()
        self.bottleneck = bottleneck
        inner = out // 2 if bottleneck else out
        self.conv1 = nn.Conv2d(
            channels, inner, 1 if bottleneck else 3, 1 if bottleneck else stride, 0 if bottleneck else 1
        )
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner if bottleneck else out, 3, stride if bottleneck else 1, 1)
        self.bn2 = nn.BatchNorm2d(inner if bottleneck else out)
        if bottleneck:
            self.conv3, self.bn3 = nn.Conv2d(inner, out, 1), nn.BatchNorm2d(out)
        self.downsample = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.bottleneck:
            y = self.bn3(self.conv3(F.relu(y)))
        y += x if self.downsample is None else self.downsample(x)
        return F.relu(y)


class ResNet(nn.Module):
    def __init__(self, bottleneck: bool) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(Block(8, 8, 1, bottleneck), Block(8, 8, 1, bottleneck))
        self.layer2 = nn.Sequential(Block(8, 16, 2, bottleneck), Block(16, 16, 1, bottleneck))
        self.fc = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(self.layer2(self.layer1(x)), 1), 1))


class Decoder(nn.Module):
    """Pre-norm blocks of an MLP, plain or gated, whose sums are normed later."""

    def __init__(self, gated: bool, final_norm: bool = True) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 12)
        self.norms = nn.ModuleList(nn.LayerNorm(12) for _ in range(2))
        self.up = nn.ModuleList(nn.Linear(12, 24) for _ in range(2))
        self.gate = nn.ModuleList(nn.Linear(12, 24) for _ in range(2)) if gated else None
        self.down = nn.ModuleList(nn.Linear(24, 12) for _ in range(2))
        self.norm = nn.LayerNorm(12) if final_norm else nn.Identity()
        self.head = nn.Linear(12, 20)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for place, norm in enumerate(self.norms):
            y = norm(x)
            hidden = F.gelu(self.up[place](y))
            if self.gate is not None:
                hidden = hidden * self.gate[place](y)
            x = x + self.down[place](hidden)
        return self.head(self.norm(x))


def convolutional() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.PReLU(8), nn.Conv2d(8, 12, 1)),
        *(nn.BatchNorm2d(12), nn.SiLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()),
        *(nn.Linear(48, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4)),
    )


def test_chains_of_convolutions_norms_and_linear_layers() -> None:
    assert found(convolutional()) == {
        "0": (8, ["0", "1", "4", "5", "6", "7"], False),
        "7": (12, ["7", "8", "12"], False),
        "12": (16, ["12", "13", "15"], False),
    }
    cuts = {
        cut.name: cut.axes for cut in cut_tensors(convolutional(), find_layers(convolutional(), False, None).layers)
    }
    assert cuts["7.weight"] == {"0": (1, 1), "7": (0, 1)}
    assert cuts["12.weight"] == {"7": (1, 4), "12": (0, 1)}  # four positions of each channel
    assert cuts["4.weight"] == {"0": (0, 1)}
    assert "15.bias" not in cuts


def test_the_inner_channels_of_residual_blocks() -> None:
    blocks = ["layer1.0", "layer1.1", "layer2.0", "layer2.1"]
    assert list(found(ResNet(False))) == [f"{block}.conv1" for block in blocks]
    assert list(found(ResNet(True))) == [f"{block}.{conv}" for block in blocks for conv in ("conv1", "conv2")]
    uncut = find_layers(ResNet(False), False, None).uncut
    assert uncut["conv1"] == uncut["layer1.0.conv2"] == "they cross a residual sum"
    assert uncut["fc"] == "they reach the output"


@pytest.mark.parametrize("gated", [False, True])
def test_hidden_units_of_transformers_whose_sums_are_normed_later(gated: bool) -> None:
    layers = found(Decoder(gated))
    for place in range(2):
        members = [f"up.{place}", *([f"gate.{place}"] if gated else []), f"down.{place}"]
        assert layers[f"up.{place}"] == (24, members, True)
    assert [scaled for _, _, scaled in found(Decoder(gated), scaled=False).values()] == [False, False]
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
    assert list(found(encoder)) == ["layers.0.linear1", "layers.1.linear1"]


class Attention(nn.Module):
    """What torch.fx cannot trace: it unpacks a shape."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(12, 36), nn.Linear(12, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, _, width = x.shape
        return self.out(F.scaled_dot_product_attention(*self.qkv(x).split(width, -1)))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(12), Attention(), nn.LayerNorm(12)
        self.mlp = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Language(nn.Module):
    """A decoder with learned positions."""

    def __init__(self, checks: bool) -> None:
        super().__init__()
        self.checks = checks
        self.embedding, self.positions = nn.Embedding(20, 12), nn.Parameter(torch.zeros(12))
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.norm, self.head = nn.LayerNorm(12), nn.Linear(12, 20)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        if self.checks:
            assert ids.shape[1] <= 8
        x = self.embedding(ids) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def test_modules_that_cannot_be_traced_are_stepped_over() -> None:
    layers = found(Language(False))
    assert layers == {
        f"layers.{place}.mlp.0": (24, [f"layers.{place}.mlp.0", f"layers.{place}.mlp.2"], True) for place in range(2)
    }
    with pytest.raises(joinsum.PlanError, match=r"producer=layers.0.mlp.0.*scaled=True"):
        find_layers(Language(True), False, None)
    assert found(Language(True), unnormalised=True, scaled=True) == layers
    assert "torch.fx cannot follow" in find_layers(Language(True), True, True).uncut["the model"]


def test_hidden_units_whose_sum_is_never_normed_are_refused() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.head = nn.Linear(4, 8), nn.Linear(8, 4), nn.Linear(4, 2)
            self.stem = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.stem(x)
            return self.head(x + self.second(F.relu(self.first(x))))

    with pytest.raises(joinsum.PlanError, match="producer=first, consumer=second"):
        find_layers(Residual(), False, None)
    assert list(found(Residual(), unnormalised=True)) == ["first"]


class Mixed(nn.Module):
    """Hidden neurons that `mix` combines with others."""

    def __init__(self, mix: Any) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)
        self.mix = mix

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.mix(self.norm(self.first(x))))


@pytest.mark.parametrize(
    ("mix", "reason"),
    [
        (lambda x: x.softmax(-1), "operator=softmax"),
        (lambda x: x.view(-1, 8), "operator=view"),
        (lambda x: x.flip(-1), "operator=flip"),
        (lambda x: torch.cat([x, x], 1)[:, :8], "operator=cat"),
        (lambda x: x / x.sum(-1, keepdim=True), "combined|operator=sum"),
        (lambda x: x + x.mean(), "operator=mean"),
        (lambda x: x + torch.ones(8), "combined|operator"),
    ],
)
def test_neurons_that_are_mixed_are_not_cut(mix: Any, reason: str) -> None:
    with pytest.raises(joinsum.PlanError, match=f"first: they .*({reason})"):
        find_layers(Mixed(mix), False, None)


@pytest.mark.parametrize(
    "mix",
    [
        *(nn.MaxPool1d(3, 1, 1), nn.AvgPool1d(3, 1, 1), nn.AdaptiveAvgPool1d(8), nn.AdaptiveMaxPool1d(8)),
        *(nn.MaxPool2d(1), nn.AvgPool3d(1), nn.LPPool1d(2, 1), nn.MaxUnpool1d(1), nn.FractionalMaxPool2d(1, 1)),
        *(nn.Upsample(8), nn.ZeroPad2d(0), nn.ZeroPad1d(0), nn.ReflectionPad1d(0), nn.ConstantPad1d(0, 0.0)),
        *(nn.Unfold(1), nn.Fold(1, 1), nn.PixelShuffle(2), nn.PixelUnshuffle(2), nn.ChannelShuffle(2)),
        *(nn.LocalResponseNorm(2), nn.CrossMapLRN2d(2), nn.GroupNorm(2, 8), nn.InstanceNorm1d(8), nn.BatchNorm2d(8)),
        *(nn.Flatten(), nn.Flatten(0), nn.Unflatten(1, (2, 4)), nn.GLU(), nn.Conv1d(8, 8, 1, groups=8)),
        *(nn.Softmax(1), nn.Softmin(1), nn.LogSoftmax(1), nn.Softmax2d(), nn.CosineSimilarity(), nn.LSTM(8, 8)),
        *(nn.Conv1d(8, 8, 1), nn.Conv1d(8, 8, 1, groups=2), nn.Bilinear(8, 8, 8), nn.LayerNorm((1, 8))),
    ],
    ids=lambda module: type(module).__name__,
)
def test_modules_that_mix_the_neurons_of_a_linear_leave_it_uncut(mix: nn.Module) -> None:
    with pytest.raises(joinsum.PlanError, match=r"first: they (reach|are flattened)"):
        find_layers(Mixed(mix), False, None)


@pytest.mark.parametrize(
    ("mix", "cut"),
    [
        *((nn.MaxPool1d(2), True), (nn.AvgPool2d(2), False), (nn.AdaptiveAvgPool2d(2), False), (nn.Upsample(8), True)),
        *((nn.ZeroPad2d(1), False), (nn.BatchNorm2d(8), False), (nn.InstanceNorm2d(8), False)),
        *((nn.InstanceNorm1d(8), True), (nn.PReLU(8), True), (nn.PReLU(), True), (nn.LayerNorm(8), False)),
        *((lambda x: F.max_pool1d(x, 2), True), (lambda x: F.max_pool2d(x, 2), False)),
        *((lambda x: F.pad(x, (1, 1)), True), (lambda x: F.pad(x, (1, 1, 1, 1)), False)),
        *((lambda x: x.mean(2, True), True), (lambda x: x.mean(-1, keepdim=True), True)),
        *((lambda x: x.mean((1, 2), True), False), (lambda x: x.mean([-1, -2], keepdim=True), False)),
    ],
)
def test_channels_are_cut_where_only_the_axes_behind_them_are_pooled(mix: Any, cut: bool) -> None:
    class Channels(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm, self.second = nn.Conv1d(4, 8, 1), nn.BatchNorm1d(8), nn.Conv1d(8, 2, 1)
            self.mix = mix

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.mix(self.norm(self.first(x))))

    if cut:
        assert list(found(Channels())) == ["first"]
    else:
        with pytest.raises(joinsum.PlanError, match="first: they reach"):
            find_layers(Channels(), False, None)


def test_a_mean_over_one_of_two_axes_leaves_no_channels_last() -> None:
    class Means(nn.Module):
        def __init__(self, *axes: int) -> None:
            super().__init__()
            self.first, self.norm, self.second = nn.Conv2d(4, 8, 1), nn.BatchNorm2d(8), nn.Linear(8, 2)
            self.axes = axes

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.norm(self.first(x)).mean(self.axes))

    assert list(found(Means(2, 3))) == ["first"]
    assert list(found(Means(-1, -2))) == ["first"]
    with pytest.raises(joinsum.PlanError, match="first: they reach a module along another axis"):
        find_layers(Means(3), False, None)


def test_a_view_of_all_but_the_batch_is_told_from_other_views() -> None:
    class Viewed(nn.Module):
        def __init__(self, extent: Any) -> None:
            super().__init__()
            self.first, self.norm, self.second = nn.Conv1d(4, 8, 1), nn.BatchNorm1d(8), nn.Linear(16, 2)
            self.extent = extent

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.norm(self.first(x)).view(self.extent(x), -1))

    for first in (lambda x: x.size(0), lambda x: x.shape[0], lambda x: x.size()[0]):
        assert list(found(Viewed(first))) == ["first"]
    for other in (lambda x: x.size(0) * 2, lambda x: x.size(1), lambda x: x.shape[1]):
        with pytest.raises(joinsum.PlanError, match="first: they reach an operator that mixes axes: operator=view"):
            find_layers(Viewed(other), False, None)


@pytest.mark.parametrize(
    ("attribute", "cut"),
    [
        *((name, False) for name in ("T", "mT", "H", "mH", "real", "grad")),
        *((name, True) for name in ("data", "shape", "ndim", "dtype", "device", "layout", "is_cuda", "requires_grad")),
    ],
)
def test_only_attributes_that_say_sizes_and_kinds_do_not_pass_neurons_on(attribute: str, cut: bool) -> None:
    class Passes(Mixed):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, object]:
            hidden = self.norm(self.first(x))
            read = getattr(hidden, attribute)
            return self.second(read if attribute == "data" else hidden), None if attribute == "data" else read

    model = Passes(None)
    if cut:
        assert list(found(model)) == ["first"]
    else:
        with pytest.raises(joinsum.PlanError, match=f"first: they reach .*: attribute={attribute}"):
            find_layers(model, False, None)


class Tied(nn.Module):
    """A function of the embedding's own weight, and an MLP."""

    def __init__(self, read: Any) -> None:
        super().__init__()
        self.e, self.norm, self.inner = nn.Embedding(9, 8), nn.LayerNorm(8), nn.Linear(8, 6)
        self.inner_norm, self.last = nn.BatchNorm1d(6), nn.Linear(6, 8)
        self.read = read

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.last(self.inner_norm(self.inner(self.norm(self.e(ids)))))
        return self.read(hidden, self)


def test_a_module_whose_weight_the_forward_pass_reads_is_not_cut() -> None:
    def tied(hidden: torch.Tensor, model: Tied) -> torch.Tensor:
        return F.linear(hidden, model.e.weight)

    layers = find_layers(Tied(tied), False, None)
    assert [layer.name for layer in layers.layers] == ["inner"]
    assert layers.uncut["e"] == "the forward pass reads a tensor of a module itself: tensor=e.weight"
    assert list(found(Tied(lambda hidden, model: hidden.to(model.e.weight.dtype)))) == ["e", "inner"]
    assert list(found(Tied(lambda hidden, model: hidden * model.inner_norm.weight.sum()))) == ["e"]
    joinsum.init(sites=2)
    model = Tied(tied)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(joinsum.PlanError, match=r"tensor=e.weight; leave it out of layers: layer=e"):
        joinsum.IST(model, optimizer, layers=[("e", "norm", "inner")])
    with joinsum.IST(model, optimizer, every=1):
        for _ in range(4):
            model(torch.randint(9, (5,))).square().mean().backward()
            optimizer.step()


def test_gates_of_the_neurons_that_they_multiply_leave_them_uncut() -> None:
    class Highway(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.n, self.g, self.b = nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Linear(16, 16), nn.Linear(16, 8)
            self.m, self.c = nn.BatchNorm1d(8), nn.Linear(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.n(self.a(x))
            return self.c(self.m(self.b(h * torch.sigmoid(self.g(h)))))

    layers = find_layers(Highway(), False, None)
    assert list(found(Highway())) == ["b"]
    assert layers.uncut["a"] == layers.uncut["g"]
    assert "computes what they are multiplied with: module=g" in layers.uncut["a"]


def test_a_norm_that_two_layers_share_leaves_them_uncut() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.norm = nn.Linear(4, 8), nn.Linear(8, 8), nn.LayerNorm(8)
            self.c, self.other, self.d = nn.Linear(8, 6), nn.LayerNorm(6), nn.Linear(6, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.d(self.other(self.c(self.norm(self.b(self.norm(self.a(x)))))))

    layers = find_layers(Shared(), False, None)
    assert list(found(Shared())) == ["c"]
    assert layers.uncut["a"] == layers.uncut["b"] == "a module is called more than once: module=norm"


def test_modules_that_are_called_by_keyword_are_cut_and_scaled() -> None:
    class Named(Mixed):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(input=self.norm(input=self.first(input=x)))

    joinsum.init(sites=2)
    results = []
    for kind in (Mixed, Named):
        torch.manual_seed(1)
        model = kind(lambda x: x)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with joinsum.IST(model, optimizer, every=1, scaled=True) as ist:
            for number in range(6):
                optimizer.zero_grad()
                model(torch.arange(12.0).view(3, 4) - number).square().mean().backward()
                optimizer.step()
        assert [layer.scaled for layer in ist.layers] == [True]
        results.append(model.state_dict())
    assert all(torch.equal(results[1][name], wanted) for name, wanted in results[0].items())


def test_a_module_that_is_called_twice_is_not_cut() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm, self.second = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(2):
                x = self.second(self.norm(self.first(x)))
            return x

    with pytest.raises(joinsum.PlanError, match="called more than once: module=first"):
        find_layers(Twice(), False, None)


def test_a_model_that_cannot_be_traced_is_searched_in_its_parts() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x) if x.sum() > 0 else x

    assert found(Outer()) == {"body.0": (8, ["body.0", "body.1", "body.3"], False)}


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (convolutional, (4, 3, 8, 8)),
        (lambda: ResNet(False), (4, 3, 16, 16)),
        (lambda: ResNet(True), (4, 3, 16, 16)),
        (lambda: Decoder(False), None),
        (lambda: Decoder(True), None),
    ],
)
@pytest.mark.parametrize("sites", [2, 3])
def test_subnets_of_models_run_and_come_back_to_the_bit(make: Any, shape: Any, sites: int) -> None:
    joinsum.init(sites=sites)
    torch.manual_seed(3)
    model = make()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
    ist = joinsum.IST(model, optimizer, every=1)
    for _ in range(3 * sites):
        x = torch.randint(0, 20, (3, 5)) if shape is None else torch.randn(shape)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    assert ist.rounds == 3
    ist.gather()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]), name


def stack_of(norm_first: bool, norm: bool, layers: int = 2) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, norm_first=norm_first)
    return nn.TransformerEncoder(layer, layers, nn.LayerNorm(8) if norm else None, enable_nested_tensor=False)


class Read(nn.Module):
    """A head that reads what a function makes of an encoder's result."""

    def __init__(self, reading: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.encoder, self.head, self.reading = stack_of(True, norm=False), nn.Linear(8, 3), reading

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.reading(self.encoder(x)))


@pytest.mark.parametrize(
    ("make", "last"),
    [
        (lambda: nn.Sequential(stack_of(True, norm=False), nn.Linear(8, 3)), "0.layers.1"),
        (lambda: nn.Sequential(stack_of(True, norm=False), nn.GELU(), nn.Linear(8, 3)), "0.layers.1"),
        (lambda: nn.Sequential(stack_of(True, norm=False).layers[0], nn.Linear(8, 3)), "0"),
        (lambda: nn.Sequential(stack_of(False, norm=False), stack_of(True, norm=False)), "1.layers.1"),
        (lambda: Read(lambda encoded: encoded[:, 0]), "encoder.layers.1"),
        (lambda: Read(lambda encoded: encoded.mean(1)), "encoder.layers.1"),
        (lambda: Read(lambda encoded: encoded.transpose(0, 1)[0]), "encoder.layers.1"),
        (lambda: Read(lambda encoded: F.layer_norm(encoded, (8,))), None),
        (lambda: nn.Sequential(stack_of(True, norm=False), stack_of(True, norm=True)), None),
        (lambda: nn.Sequential(stack_of(True, norm=False), nn.LayerNorm(8), nn.Linear(8, 3)), None),
        (lambda: nn.Sequential(*stack_of(True, norm=False).layers, nn.LayerNorm(8)), None),
        (lambda: nn.Sequential(stack_of(True, norm=True), nn.Linear(8, 3)), None),
        (lambda: nn.Sequential(stack_of(False, norm=False), nn.Linear(8, 3)), None),
    ],
)
def test_the_last_sum_of_transformer_layers_needs_a_norm(make: Callable[[], nn.Module], last: str | None) -> None:
    model = make()
    cut = [name for name, _ in model.named_modules() if name.endswith("linear1")]
    if last is None:
        assert [layer.name for layer in find_layers(model, False, None).layers] == cut
        return
    names = f"producer={last}.linear1, consumer={last}.linear2"
    with pytest.raises(joinsum.PlanError, match=f"{names}; .*unnormalised=True"):
        find_layers(model, False, None)
    assert [layer.name for layer in find_layers(model, True, None).layers] == cut


# --- layers without a norm --------------------------------------------------------------------------------------------


def test_all_layers_without_a_norm_are_named_and_may_be_left_whole() -> None:
    widths = (nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 9), nn.BatchNorm1d(9), nn.Linear(9, 8), nn.ReLU())
    model = nn.Sequential(*widths, nn.Linear(8, 2))
    named = "2 hidden layers .*: producer=0, consumer=2; producer=4, consumer=6;"
    with pytest.raises(joinsum.PlanError, match=f'{named}.*unnormalised="skip"'):
        find_layers(model, False, None)
    assert list(found(model, unnormalised=True)) == ["0", "2", "4"]
    assert list(found(model, unnormalised="skip")) == ["2"]
    uncut = find_layers(model, "skip", None).uncut
    assert uncut["4"] == "no norm stands between them and what reads them: consumer=6"
    with pytest.raises(joinsum.PlanError, match=r"no hidden layer can be cut.*0: no norm stands between them"):
        find_layers(nn.Sequential(*widths[:3]), "skip", None)
    joinsum.init(sites=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(joinsum.PlanError, match=r"a hidden layer without a norm .*: producer=0, consumer=2;"):
        joinsum.IST(model, optimizer, layers=[("0", (), "2")], unnormalised="skip")
    for wrong in ({"unnormalised": "no"}, {"scaled": 0.5}):
        with pytest.raises(joinsum.PlanError, match=f"{next(iter(wrong))} is True, False or"):
            joinsum.IST(model, optimizer, **wrong)  # type: ignore[arg-type]


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.unused, self.other = nn.Linear(4, 8), nn.Linear(4, 8), nn.ConvTranspose1d(4, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.first.weight)


def test_where_nothing_is_cut_the_reason_of_each_module_is_given() -> None:
    with pytest.raises(joinsum.PlanError) as why:
        find_layers(Functional(), False, None)
    assert "first: the forward pass reads a tensor of it itself: tensor=first.weight" in str(why.value)
    assert "unused: the forward pass does not call it" in str(why.value)
    assert "other: a module of this kind cannot be a producer: kind=ConvTranspose1d" in str(why.value)
