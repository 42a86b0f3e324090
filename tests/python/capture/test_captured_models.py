"""Models whose captured programs, forward and backward, are evaluated vertex by vertex, against plain torch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import joinsum
import pytest
import torch
from capture_by_torch import Captured
from joinsum.capture.captured_graph import CapturedGraph
from joinsum.capture.executable import compile_fx
from joinsum.capture.rewrite import rewrite
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from training import EVERYTHING

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]


def mlp() -> Made:
    return nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.Linear(16, 8), nn.LayerNorm(8)), (torch.randn(6, 12),)


def convolutional() -> Made:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=4),
        nn.GroupNorm(2, 8),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )
    return model, (torch.randn(4, 3, 12, 12),)


def encoder() -> Made:
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    return layer, (torch.randn(2, 6, 16),)


class Tied(nn.Module):
    """Embedding, rotary attention with grouped heads, and a head that shares the table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(24, 16)
        self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 8), nn.Linear(16, 8)
        self.o = nn.Linear(16, 16)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.table(tokens)
        b, s, _ = x.shape
        q = self.q(x).view(b, s, 4, 4).transpose(1, 2)
        k = self.k(x).view(b, s, 2, 4).transpose(1, 2)
        v = self.v(x).view(b, s, 2, 4).transpose(1, 2)
        angle = torch.arange(s)[:, None] * torch.tensor([1.0, 0.1, 1.0, 0.1])
        q, k = (y * angle.cos() + torch.cat([-y[..., 2:], y[..., :2]], -1) * angle.sin() for y in (q, k))
        k, v = (y[:, :, None].expand(b, 2, 2, s, 4).reshape(b, 4, s, 4) for y in (k, v))
        scores = q @ k.transpose(-1, -2) / 2 + torch.full((s, s), -1e9).triu(1)
        mixed = scores.softmax(-1) @ v
        x = x + self.o(mixed.transpose(1, 2).reshape(b, s, 16))
        logits = x @ self.table.weight.t()
        return nn.functional.cross_entropy(logits[:, :-1].reshape(-1, 24), tokens[:, 1:].reshape(-1))


def grouped_query() -> Made:
    return Tied(), (torch.randint(24, (2, 7)),)


def hugging_face(kind: str) -> Made:
    transformers = pytest.importorskip("transformers")
    shape = {"vocab_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 16}
    if kind == "gpt2":
        config = transformers.GPT2Config(vocab_size=40, n_embd=16, n_layer=2, n_head=4, n_positions=16)
        config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
        config.bos_token_id, config.eos_token_id = 1, 2
        model = transformers.GPT2LMHeadModel(config)
    elif kind == "llama":
        model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(**shape, num_key_value_heads=2, intermediate_size=24)
        )
    elif kind == "t5":
        config = transformers.T5Config(vocab_size=40, d_model=16, d_kv=4, d_ff=24, num_layers=2, num_heads=4)
        config.decoder_start_token_id, config.dropout_rate = 0, 0.0
        model = transformers.T5ForConditionalGeneration(config)
    else:
        config = transformers.BertConfig(**shape, intermediate_size=24)
        config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
        model = transformers.BertForMaskedLM(config)
    model.config.use_cache = False
    tokens = torch.randint(1, 40, (2, 8))

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            more = {"decoder_input_ids": tokens} if kind == "t5" else {}
            logits = self.model(input_ids=tokens, **more).logits
            return nn.functional.cross_entropy(logits[:, :-1].reshape(-1, 40), tokens[:, 1:].reshape(-1))

    return Loss(), (tokens,)


MODELS: dict[str, Callable[[], Made]] = {
    "mlp": mlp,
    "convolutional": convolutional,
    "encoder": encoder,
    "grouped_query": grouped_query,
    **{kind: (lambda kind=kind: hugging_face(kind)) for kind in ("gpt2", "llama", "t5", "bert")},  # type: ignore[misc]
}

# Those that every change also captures rewritten.
REWRITTEN = ("encoder", "llama")

# Attention that torch takes apart below Dynamo's graph leaves products of matrices.
WITH_PRODUCTS_INSIDE = ("encoder", "t5")


def loss_of(model: nn.Module, given: tuple[torch.Tensor, ...]) -> torch.Tensor:
    result: torch.Tensor = model(*given)
    return result if result.dim() == 0 else (result * torch.linspace(0, 1, result.numel()).view_as(result)).sum()


@pytest.mark.parametrize(
    ("name", "rewritten"),
    [
        (name, rewritten)
        for name in MODELS
        for rewritten in (False, True)
        if EVERYTHING or not rewritten or name in REWRITTEN
    ],
)
def test_values_gradients_and_buffers_are_those_of_torch(name: str, rewritten: bool) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, given = MODELS[name]()
    other = copy.deepcopy(model)
    captured = Captured()

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        if rewritten:
            rewrite(gm)
        return captured.backend(gm, inputs)

    compiled = torch.compile(other, backend=backend, fullgraph=True, dynamic=False)
    expected, found = loss_of(model, given), loss_of(compiled, given)
    expected.backward()
    found.backward()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    for (key, a), b in zip(model.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(b.grad, a.grad, rtol=1e-4, atol=2e-6, msg=lambda text, key=key: f"{key}: {text}")  # type: ignore[misc]
    for a, b in zip(model.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(b, a)
    if rewritten:
        left = captured.operators & {"aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm"}
        assert not left or name in WITH_PRODUCTS_INSIDE
    assert len(captured.programs) == 2


def test_an_input_in_a_layout_that_no_plan_can_read_is_gathered_with_a_warning() -> None:
    joinsum.init(sites=4, plan_cache=False)
    x, w = torch.randn(6, 8), torch.randn(6, 8)

    def weighted(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x.view(6, 2, 4) * w.view(6, 2, 4)).sum(2)

    graph = make_fx(weighted, tracing_mode="fake")(x, w)
    run = compile_fx(CapturedGraph(graph, [x, w], names=["x", "w"]))
    with pytest.warns(UserWarning, match=r"gathered before each run: input=x, type=f32\[6,8\]<5,1>"):
        (result,) = run([joinsum.DistributedTensor.of(x, parts=(5, 1)), w])
    torch.testing.assert_close(result, weighted(x, w))
