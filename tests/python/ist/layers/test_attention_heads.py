"""Attention layers whose heads are the neurons: against the full module with the other heads at zero."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joinsum
import pytest
import torch
from joinsum.ist.layers.discovery import Found, find_layers
from joinsum.ist.layers.hidden_layers import cut_tensors, explicit_layers
from torch import nn
from torch.nn import functional as F

CPU = torch.device("cpu")
WIDTH, HEADS = 16, 4
# Axis, outer factor, neurons, elements of one, layer.
Axis = tuple[int, int, int, int, str]


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Of [batch, tokens, heads, size]."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)


class Separate(nn.Module):
    """Projections of queries, keys and values, of which several heads of queries may share the latter."""

    def __init__(self, key_heads: int = HEADS) -> None:
        super().__init__()
        size = WIDTH // HEADS
        self.num_heads, self.num_kv_heads, self.head_dim = HEADS, key_heads, size
        self.q_proj = nn.Linear(WIDTH, HEADS * size)
        self.k_proj, self.v_proj = nn.Linear(WIDTH, key_heads * size), nn.Linear(WIDTH, key_heads * size)
        self.o_proj = nn.Linear(HEADS * size, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, self.num_heads, self.head_dim)
        k = self.k_proj(x).view(b, t, self.num_kv_heads, self.head_dim)
        v = self.v_proj(x).view(b, t, self.num_kv_heads, self.head_dim)
        return self.o_proj(attend(q, k, v).reshape(b, t, -1))


class Packed(nn.Module):
    """One projection: all queries, then all keys, then all values ("chunks"), or the three of a head ("heads")."""

    def __init__(self, layout: str) -> None:
        super().__init__()
        self.n_head, self.dim, self.layout = HEADS, WIDTH, layout
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        if self.layout == "heads":
            q, k, v = self.qkv(x).view(b, t, self.n_head, -1).chunk(3, -1)
        else:
            q, k, v = (each.view(b, t, self.n_head, -1) for each in self.qkv(x).split(self.dim, -1))
        return self.proj(attend(q, k, v).flatten(2))


class FixedWidth(Packed):
    """Reads the features of its input where those of the heads are meant."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = (each.view(b, t, self.n_head, c // self.n_head) for each in self.qkv(x).split(self.dim, -1))
        return self.proj(attend(q, k, v).reshape(b, t, c))


class FixedCount(Packed):
    """Has a number of heads that is not the module's: with some heads it runs, and computes others."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        q, k, v = (each.view(b, t, HEADS, -1) for each in self.qkv(x).chunk(3, -1))
        return self.proj(attend(q, k, v).flatten(2))


class ReadsOutput(Separate):
    """Does not call its output projection."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        q, k, v = (p(x).view(b, t, -1, self.head_dim) for p in (self.q_proj, self.k_proj, self.v_proj))
        return F.linear(attend(q, k, v).flatten(2), self.o_proj.weight, self.o_proj.bias)


class Slopes(Separate):
    """Has a number for each head."""

    def __init__(self) -> None:
        super().__init__()
        self.slopes = nn.Parameter(torch.ones(HEADS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        q, k, v = (p(x).view(b, t, -1, self.head_dim) for p in (self.q_proj, self.k_proj, self.v_proj))
        return self.o_proj((attend(q, k, v) * self.slopes[:, None]).flatten(2))


class MultiHead(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        other = x[..., : self.attention.kdim]
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        return self.attention(x, other, other, attn_mask=mask, need_weights=False)[0]


class Residual(nn.Module):
    """A pre-norm block of an attention layer, and a classifier."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.first, self.last = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.head = attention, nn.Linear(WIDTH, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.last(x + self.attention(self.first(x))))


def torch_layer(kind: str) -> nn.Module:
    if kind == "encoder":
        return nn.TransformerEncoderLayer(WIDTH, HEADS, 24, dropout=0.0, batch_first=True, norm_first=True)

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerDecoderLayer(WIDTH, HEADS, 24, dropout=0.0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.transpose(0, 1)
            return self.layer(x, x.flip(0)).transpose(0, 1)

    return Decoder()


class Language(nn.Module):
    """A model of Hugging Face as a function of hidden states."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        transformers = pytest.importorskip("transformers")
        sizes = {"hidden_size": WIDTH, "num_attention_heads": HEADS, "num_hidden_layers": 1, "vocab_size": 20}
        sizes |= {"intermediate_size": 24, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
        if kind == "llama":
            config = transformers.LlamaConfig(**sizes, num_key_value_heads=2)
            self.model = transformers.LlamaModel(config)
        elif kind == "gpt2":
            drops = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)
            config = transformers.GPT2Config(**{**sizes, **drops})
            self.model = transformers.GPT2Model(config)
        else:
            drops = dict.fromkeys(("attention_probs_dropout_prob", "hidden_dropout_prob"), 0.0)
            config = transformers.BertConfig(**sizes, **drops)
            self.model = transformers.BertModel(config, add_pooling_layer=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.model(inputs_embeds=x)[0]
        return found


MODELS: dict[str, Callable[[], nn.Module]] = {
    "separate": lambda: Residual(Separate()),
    "key/value groups": lambda: Residual(Separate(2)),
    "packed by chunks": lambda: Residual(Packed("chunks")),
    "packed by heads": lambda: Residual(Packed("heads")),
    "multihead": lambda: Residual(MultiHead()),
    "multihead of other keys": lambda: Residual(MultiHead(kdim=8, vdim=8)),
    "multihead with added tokens": lambda: Residual(MultiHead(add_bias_kv=True, add_zero_attn=True)),
    "encoder": lambda: torch_layer("encoder"),
    "decoder": lambda: torch_layer("decoder"),
    "llama": lambda: Language("llama"),
    "gpt2": lambda: Language("gpt2"),
    "bert": lambda: Language("bert"),
}
GROUPED = ("llama", "key/value groups")  # of which two share a key and a value
all_models = pytest.mark.parametrize("name", list(MODELS))


def made(name: str, seed: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    model = MODELS[name]()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)  # biases and added tokens too
    return model


def found(model: nn.Module) -> Found:
    return find_layers(model, True, None, CPU)


def heads_only(model: nn.Module) -> list[tuple[str, tuple[()], str]]:
    """The layers of attention heads, by name."""
    layers = [layer for layer in found(model).layers if "tten" in layer.name or layer.name.endswith("attn")]
    return [(layer.name, (), layer.consumers[0].module) for layer in layers]


def inputs(count: int, tokens: int = 5) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(2, tokens, WIDTH, generator=generator) for _ in range(count)]


def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return model(x).square().sin().sum()


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[torch.Tensor]) -> None:
    for x in batches:
        optimizer.zero_grad()
        loss(model, x).backward()
        optimizer.step()


def axes_of(model: nn.Module) -> dict[str, Axis]:
    """Where heads cut the model's tensors."""
    layers = explicit_layers(model, heads_only(model), False, None, CPU)
    neurons = {layer.name: layer.neurons for layer in layers}
    found = {}
    for cut in cut_tensors(model, layers):
        ((layer, (axis, block)),) = cut.axes.items()
        found[cut.name] = (axis, cut.outer.get(layer, 1), neurons[layer], block, layer)
    return found


def part(tensor: torch.Tensor, at: Axis, own: dict[str, list[int]]) -> torch.Tensor:
    axis, outer, neurons, block, layer = at
    of_heads = tensor.unflatten(axis, (outer, neurons, block))
    return of_heads.index_select(axis + 1, torch.tensor(own[layer])).flatten(axis, axis + 2)


# --- the definition ---------------------------------------------------------------------------------------------------


def reference(full: nn.Module, axes: dict[str, Axis], own: dict[str, list[int]], outputs: set[str]) -> nn.Module:
    """The full model whose output projections read some heads, times the number of sites, and of others zeros."""
    model = copy.deepcopy(full)
    for tensor in outputs & set(axes):
        axis, _, neurons, block, layer = axes[tensor]
        factor = torch.zeros(neurons).index_fill_(0, torch.tensor(own[layer]), joinsum.sites())
        value = model.get_parameter(tensor)
        shape = [1] * value.dim()
        shape[axis] = -1
        with torch.no_grad():
            value.mul_(factor.repeat_interleave(block).view(shape))
    return model


@all_models
@pytest.mark.parametrize("sites", [2, 4])
def test_a_subnet_trains_what_the_full_model_does_with_other_heads_at_zero(name: str, sites: int) -> None:
    sites = 2 if name in GROUPED else sites
    joinsum.init(sites=sites)
    model = made(name)
    full, axes = copy.deepcopy(model), axes_of(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125)  # of which every product is exact
    ist = joinsum.IST(model, optimizer, every=None, layers=heads_only(model), seed=4)
    assert {layer.scaled for layer in ist.layers} == {True}
    outputs = {f"{layer.consumers[0].module}.weight" for layer in ist.layers}
    trained: dict[str, list[Any]] = {}
    for site, x in enumerate(inputs(sites)):
        own = {layer.name: ist.neurons(layer.name) for layer in ist.layers}
        assert ist.site == site
        assert all(len(own[layer.name]) == layer.neurons // sites for layer in ist.layers)
        for tensor, at in axes.items():
            assert torch.equal(model.get_parameter(tensor), part(full.get_parameter(tensor), at, own)), tensor
        other = reference(full, axes, own, outputs)
        wanted = loss(other, x)
        wanted.backward()
        optimizer.zero_grad()
        got = loss(model, x)
        got.backward()
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
        for tensor, parameter in model.named_parameters():
            gradient = other.get_parameter(tensor).grad
            if gradient is None:
                assert parameter.grad is None
                continue
            if tensor in axes:
                gradient = part(gradient, axes[tensor], own) * (sites if tensor in outputs else 1)
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-4, msg=tensor)
            trained.setdefault(tensor, []).append((own, parameter.detach() - 0.125 * parameter.grad))
        optimizer.step()
    ist.gather()
    for tensor, of_sites in trained.items():
        value = model.get_parameter(tensor)
        if tensor in axes:
            assert all(torch.equal(part(value, axes[tensor], own), each) for own, each in of_sites), tensor
        else:
            torch.testing.assert_close(value, torch.stack([each for _, each in of_sites]).mean(0), rtol=1e-4, atol=1e-5)


@all_models
@pytest.mark.parametrize("sites", [2, 3])
def test_rounds_without_learning_leave_the_model_to_the_bit(name: str, sites: int) -> None:
    joinsum.init(sites=2 if name in GROUPED else sites)
    model = made(name)
    before = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
    ist = joinsum.IST(model, optimizer, every=1, unnormalised=True, attention_heads=True)
    drawn = []
    for _ in range(4):
        train(model, optimizer, inputs(joinsum.sites()))
        for layer in ist.layers:
            of_sites = [ist.neurons(layer.name, site) for site in range(joinsum.sites())]
            assert sorted(head for own in of_sites for head in own) == list(range(layer.neurons))
        drawn.append([ist.neurons(layer.name) for layer in ist.layers])
    assert ist.rounds == 4
    assert any(each != drawn[0] for each in drawn)
    ist.gather()
    for (tensor, value), wanted in zip(model.named_parameters(), before.parameters(), strict=True):
        assert torch.equal(value, wanted), tensor
    for module, wanted_module in zip(model.modules(), before.modules(), strict=True):
        for key, number in vars(wanted_module).items():
            if isinstance(number, int):
                assert vars(module)[key] == number, key
        assert "forward" not in vars(module)


@all_models
def test_one_site_trains_as_plain_torch_to_the_bit(name: str) -> None:
    joinsum.init(sites=1)
    model = made(name)
    plain = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with joinsum.IST(model, optimizer, every=2, unnormalised=True, attention_heads=True) as ist:
        assert heads_only(plain)[0][0] in {layer.name for layer in ist.layers}
        train(model, optimizer, inputs(5))
    train(plain, torch.optim.Adam(plain.parameters(), lr=0.01), inputs(5))
    for (tensor, value), wanted in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(value, wanted), tensor


@all_models
def test_the_full_model_and_its_checkpoint_have_all_heads_in_their_order(name: str, tmp_path: Path) -> None:
    joinsum.init(sites=2)
    model = made(name)
    plain = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    ist = joinsum.IST(model, optimizer, every=2, unnormalised=True, attention_heads=True)
    train(model, optimizer, inputs(8))
    ist.save_checkpoint(tmp_path)
    read = torch.optim.Adam(plain.parameters(), lr=0.5)
    joinsum.load_checkpoint(tmp_path, plain, read)
    x = inputs(1)[0]
    with ist.full() as full, torch.no_grad():
        torch.testing.assert_close(full(x), plain.eval()(x), rtol=1e-4, atol=1e-5)
    train(model, optimizer, inputs(6))
    other = made(name, seed=9)
    optimizer2 = torch.optim.Adam(other.parameters(), lr=0.5)
    again = joinsum.IST(other, optimizer2, every=2, unnormalised=True, attention_heads=True)
    again.load_checkpoint(tmp_path)
    train(other, optimizer2, inputs(6))
    ist.gather(), again.gather()
    for (tensor, value), wanted in zip(other.named_parameters(), model.parameters(), strict=True):
        assert torch.equal(value, wanted), tensor


# --- torch's own module -----------------------------------------------------------------------------------------------


class Caller(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, **options)

    def forward(self, *tokens: torch.Tensor, **options: Any) -> Any:
        return self.attention(*tokens, **options)


PADDING = torch.tensor([[False] * 5 + [True], [False] * 6])
FUTURE = torch.ones(4, 6, dtype=torch.bool).triu(2)


@pytest.mark.parametrize("weights", ["none", "mean", "each"])
@pytest.mark.parametrize("options", [{}, {"batch_first": True}, {"add_bias_kv": True, "add_zero_attn": True}])
@pytest.mark.parametrize(
    "masks",
    [
        {},
        {"key_padding_mask": PADDING},
        {"attn_mask": FUTURE},
        {"attn_mask": torch.zeros(4, 6).masked_fill(FUTURE, -2.0), "key_padding_mask": torch.where(PADDING, -1.0, 0.0)},
    ],
)
def test_multihead_attention_takes_the_masks_that_torchs_takes(weights: str, options: Any, masks: Any) -> None:
    joinsum.init(sites=2)
    torch.manual_seed(1)
    model = Caller(**options)
    full = copy.deepcopy(model).attention
    ist = joinsum.IST(model, torch.optim.SGD(model.parameters(), 0.1), layers=[("attention", [], "attention.out_proj")])
    own = ist.neurons("attention")
    with torch.no_grad():
        full.out_proj.weight.mul_(torch.zeros(HEADS).index_fill_(0, torch.tensor(own), 2).repeat_interleave(4))
    query, key, value = torch.randn(2, 4, WIDTH), torch.randn(2, 6, WIDTH), torch.randn(2, 6, WIDTH)
    how = {"need_weights": weights != "none", "average_attn_weights": False, **masks}
    if not options.get("batch_first"):
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
    wanted, wanted_weights = full(query, key, value, **how)
    got, got_weights = model(query, key, value, **how | {"average_attn_weights": weights == "mean"})
    torch.testing.assert_close(got, wanted)
    if weights == "none":
        assert got_weights is None
    else:
        wanted_weights = wanted_weights[:, own]
        torch.testing.assert_close(got_weights, wanted_weights.mean(1) if weights == "mean" else wanted_weights)
    if not options.get("batch_first"):
        how = {name: mask[1] if name == "key_padding_mask" else mask for name, mask in how.items()}
        torch.testing.assert_close(model(query[:, 1], key[:, 1], value[:, 1], **how)[0], wanted[:, 1])


def test_causal_hints_and_masks_of_each_head() -> None:
    joinsum.init(sites=2)
    torch.manual_seed(1)
    model = Caller(batch_first=True)
    joinsum.IST(model, torch.optim.SGD(model.parameters(), 0.1), layers=[("attention", [], "attention.out_proj")])
    x, future = torch.randn(2, 5, WIDTH), torch.ones(5, 5, dtype=torch.bool).triu(1)
    wanted = model(x, x, x, attn_mask=future)[0]
    torch.testing.assert_close(model(x, x, x, attn_mask=future, is_causal=True, need_weights=False)[0], wanted)
    with pytest.raises(RuntimeError, match="Need attn_mask"):
        model(x, x, x, is_causal=True)
    with pytest.raises(joinsum.PlanError, match="takes no attn_mask of each head"):
        model(x, x, x, attn_mask=future.expand(2 * HEADS, 5, 5))


@pytest.mark.parametrize("scaled", [None, False])
def test_evaluation_of_a_subnet_does_not_take_torchs_path_of_all_heads(scaled: bool | None) -> None:
    joinsum.init(sites=2)
    model = made("encoder")
    ist = joinsum.IST(model, torch.optim.SGD(model.parameters(), 0.1), scaled=scaled, attention_heads=True)
    assert [layer.scaled for layer in ist.layers] == [scaled is None] * 2
    (x,) = inputs(1)
    wanted = model(x)
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(model(x), wanted)


# --- which are cut ----------------------------------------------------------------------------------------------------


def test_heads_are_cut_where_they_are_asked_for() -> None:
    model = made("separate")
    assert "attention" not in {layer.name for layer in find_layers(made("encoder"), True, None).layers}
    with pytest.raises(joinsum.PlanError, match="no hidden layer can be cut"):
        find_layers(model, True, None)
    (layer,) = found(model).layers
    assert (layer.name, layer.neurons, layer.scaled) == ("attention", HEADS, True)
    (same,) = explicit_layers(model, [("attention", (), "attention.o_proj")], False, None, CPU)
    assert same == layer
    (unscaled,) = explicit_layers(model, [("attention", (), "attention.o_proj")], False, False, CPU)
    assert not unscaled.scaled


class Subclass(nn.MultiheadAttention):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        found: torch.Tensor = super().forward(x, x, x)[0]
        return found


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: FixedWidth("chunks"), "kind=FixedWidth: RuntimeError: shape"),
        (lambda: FixedCount("chunks"), "kind=FixedCount: with some of its heads it computes something else"),
        (lambda: ReadsOutput(), "it does not call its output projection once: module=o_proj"),
        (lambda: Slopes(), "kind=Slopes: RuntimeError: The size of tensor"),
        (lambda: Separate(1), "its heads share one key and value"),
        (lambda: nn.MultiheadAttention(WIDTH, 1), "it has one head"),
        (lambda: Subclass(WIDTH, HEADS), "its class has a forward pass of its own: kind=Subclass"),
    ],
)
def test_what_does_not_follow_its_heads_is_refused_by_name(make: Any, reason: str) -> None:
    joinsum.init(sites=2)
    model = Residual(make())
    output = next(name for name in ("o_proj", "proj", "out_proj") if hasattr(model.attention, name))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(joinsum.PlanError, match=f"module=attention: .*{reason}"):
        joinsum.IST(model, optimizer, layers=[("attention", (), f"attention.{output}")])
    with pytest.raises(joinsum.PlanError, match=f"attention: .*{reason}"):
        joinsum.IST(model, optimizer, attention_heads=True)


def test_a_trial_changes_no_module_and_no_random_numbers() -> None:
    model = made("bert")
    before = copy.deepcopy(model.state_dict())
    torch.manual_seed(4)
    wanted = torch.rand(3)
    torch.manual_seed(4)
    assert heads_only(model)
    assert torch.equal(torch.rand(3), wanted)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training


def test_the_projections_of_heads_are_no_producers_by_themselves() -> None:
    model = made("separate")
    projections = ["attention.q_proj", "attention.k_proj", "attention.v_proj"]
    with pytest.raises(joinsum.PlanError, match="compute heads: module=attention"):
        explicit_layers(model, [(projections, (), "attention.o_proj", HEADS)], True, True, CPU)


def test_more_sites_than_heads_are_refused() -> None:
    joinsum.init(sites=5)
    model = made("separate")
    with pytest.raises(joinsum.PlanError, match="fewer neurons than sites: layer=attention, neurons=4, sites=5"):
        joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1), attention_heads=True)


# --- tensors that are cut twice ---------------------------------------------------------------------------------------


class Bottleneck(nn.Module):
    """An attention whose input are the neurons of another hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm = nn.Linear(6, WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.head = Packed("heads"), nn.Linear(WIDTH, 3)
        self.attention.layout = "chunks"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.attention(self.norm(self.up(x))))


LAYERS = [("up", "norm", "attention.qkv"), ("attention", (), "attention.proj")]


@pytest.mark.parametrize("sites", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"homes": "fixed"}, {"buddy": True}])
def test_weights_between_heads_and_another_layer_come_back(sites: int, options: Any) -> None:
    joinsum.init(sites=sites)
    torch.manual_seed(2)
    model = Bottleneck()
    before = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
    ist = joinsum.IST(model, optimizer, every=1, layers=LAYERS, **options)
    for number in range(4 * sites):
        own = [ist.neurons("up"), ist.neurons("attention")]
        whole = before.attention.qkv.weight.view(3, HEADS, WIDTH // HEADS, WIDTH)
        block = whole[:, own[1]][..., own[0]].reshape(-1, len(own[0]))
        assert torch.equal(model.attention.qkv.weight, block), number
        train(model, optimizer, [torch.randn(2, 5, 6)])
    assert ist.rounds == 4
    ist.gather()
    for (tensor, value), wanted in zip(model.named_parameters(), before.parameters(), strict=True):
        assert torch.equal(value, wanted), tensor


def test_heads_outlive_a_site(tmp_path: Path) -> None:
    joinsum.init(sites=3)
    torch.manual_seed(2)
    model = Bottleneck()
    before = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
    ist = joinsum.IST(model, optimizer, every=1, layers=LAYERS, buddy=True)
    train(model, optimizer, [torch.randn(2, 5, 6)] * 6)
    ist.save_survivor(tmp_path)
    lost = sorted(tmp_path.iterdir())[1]
    lost.unlink()
    joinsum.init(sites=2)
    torch.manual_seed(8)
    again = Bottleneck()
    optimizer = torch.optim.Adam(again.parameters(), lr=0.0)
    after = joinsum.IST(again, optimizer, every=1, layers=LAYERS, buddy=True)
    after.load_survivors(tmp_path)
    train(again, optimizer, [torch.randn(2, 5, 6)] * 4)
    after.gather()
    for (tensor, value), wanted in zip(again.named_parameters(), before.parameters(), strict=True):
        assert torch.equal(value, wanted), tensor


@pytest.mark.parametrize("name", ["multihead", "packed by chunks"])
def test_a_model_without_memory_has_heads(name: str) -> None:
    joinsum.init(sites=2)
    torch.manual_seed(3)
    with joinsum.init_empty():
        model = MODELS[name]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ist = joinsum.IST(model, optimizer, every=1, attention_heads=True)
    assert [layer.name.partition(".")[0] for layer in ist.layers] == ["attention"]
    train(model, optimizer, inputs(4))
    torch.manual_seed(3)
    plain = MODELS[name]()
    other = torch.optim.SGD(plain.parameters(), lr=0.1)
    same = joinsum.IST(plain, other, every=1, attention_heads=True)
    train(plain, other, inputs(4))
    ist.gather(), same.gather()
    for (tensor, value), wanted in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(value, wanted), tensor
