"""Training steps of models as users have them, with AdamW: those of the library `transformers`, made from their
configurations without weights, and such as tutorials build of torch's layers. Dropout is off: all train one model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from frame.contenders import Contender, Workload
from torch import Tensor, nn

from workloads.data_parallel import Training, by_torch, usual_contenders
from workloads.language_model import adamw

__all__ = ["WORKLOAD"]

WORDS, WIDTH, LENGTH, CLASSES = 4096, 256, 128, 10


class Made(NamedTuple):
    """A model, a batch, and the loss of the model's result."""

    model: Callable[[], nn.Module]
    inputs: Tensor
    target: Tensor
    loss: Callable[[Any, Tensor], Tensor]


# --- batches and losses -----------------------------------------------------------------------------------------------


def of_words(result: Any, target: Tensor) -> Tensor:
    scores = result if isinstance(result, Tensor) else result.logits
    return F.cross_entropy(scores.flatten(0, 1), target.flatten())


def of_classes(result: Any, target: Tensor) -> Tensor:
    return F.cross_entropy(result if isinstance(result, Tensor) else result.logits, target)


def words(model: Callable[[], nn.Module], batch: int = 8, length: int = LENGTH) -> Made:
    return Made(model, torch.randint(WORDS, (batch, length)), torch.randint(WORDS, (batch, length)), of_words)


def images(model: Callable[[], nn.Module], extent: int = 64, batch: int = 16) -> Made:
    return Made(model, torch.randn(batch, 3, extent, extent), torch.randint(CLASSES, (batch,)), of_classes)


# --- transformers -----------------------------------------------------------------------------------------------------


def hugging_face(model: str, config: str, **options: Any) -> Callable[[], nn.Module]:
    """A model of the library by the names of its class and of its configuration's."""

    def made() -> nn.Module:
        import transformers

        result: nn.Module = getattr(transformers, model)(getattr(transformers, config)(**options))
        return result

    return made


_DECODER = {"vocab_size": WORDS, "hidden_size": WIDTH, "num_hidden_layers": 4, "num_attention_heads": 4}
_PLAIN = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def gpt2() -> Made:
    """Its head is its table of words."""
    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    options = {"vocab_size": WORDS, "n_embd": WIDTH, "n_layer": 4, "n_head": 4}
    return words(hugging_face("GPT2LMHeadModel", "GPT2Config", **options, **dropout, **ends))


def llama() -> Made:
    shape = {"intermediate_size": 688, "num_key_value_heads": 2}
    return words(hugging_face("LlamaForCausalLM", "LlamaConfig", **_DECODER, **shape))


def bert() -> Made:
    return words(hugging_face("BertForMaskedLM", "BertConfig", **_DECODER, intermediate_size=1024, **_PLAIN))


def albert() -> Made:
    """All layers have the same weights."""
    shape = {"intermediate_size": 1024, "embedding_size": 64}
    return words(hugging_face("AlbertForMaskedLM", "AlbertConfig", **_DECODER, **shape, **_PLAIN))


def mixtral() -> Made:
    """A mixture of experts."""
    shape = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_key_value_heads": 2}
    return words(hugging_face("MixtralForCausalLM", "MixtralConfig", **_DECODER | shape, num_local_experts=4))


def vit() -> Made:
    shape = {"hidden_size": 192, "num_attention_heads": 3, "num_hidden_layers": 4, "intermediate_size": 768}
    size = {"image_size": 64, "patch_size": 8, "num_labels": CLASSES}
    return images(hugging_face("ViTForImageClassification", "ViTConfig", **shape, **size, **_PLAIN))


def convnext() -> Made:
    """Convolutions of each channel by itself."""
    shape = {"hidden_sizes": [32, 64, 128, 256], "depths": [2, 2, 2, 2], "num_labels": CLASSES}
    return images(hugging_face("ConvNextForImageClassification", "ConvNextConfig", **shape))


# --- of torch's layers ------------------------------------------------------------------------------------------------


class WordModel(nn.Module):
    """A table of words, layers, and a head."""

    def __init__(self, layers: nn.Module, width: int = WIDTH) -> None:
        super().__init__()
        self.table, self.layers, self.head = nn.Embedding(WORDS, width), layers, nn.Linear(WIDTH, WORDS)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(self.table(x))
        result: Tensor = self.head(y[0] if isinstance(y, tuple) else y)
        return result


def encoder() -> Made:
    def made() -> nn.Module:
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 1024, dropout=0.0, batch_first=True, norm_first=True)
        return WordModel(nn.TransformerEncoder(layer, 4, enable_nested_tensor=False))

    return words(made)


def lstm() -> Made:
    return words(lambda: WordModel(nn.LSTM(128, WIDTH, batch_first=True), 128), 32, 32)


class Mixing(nn.Module):
    """Layers over places, then over channels, with residuals."""

    def __init__(self, places: int, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.over_places = nn.Sequential(nn.Linear(places, 2 * places), nn.GELU(), nn.Linear(2 * places, places))
        self.over_channels = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.over_places(self.first(x).transpose(1, 2)).transpose(1, 2)
        result: Tensor = x + self.over_channels(self.second(x))
        return result


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 128, 8, 8)
        self.layers = nn.Sequential(*(Mixing(64, 128) for _ in range(4)))
        self.head = nn.Linear(128, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.layers(self.patches(x).flatten(2).transpose(1, 2)).mean(1))
        return result


def mixer() -> Made:
    return images(Mixer, batch=32)


class UNet(nn.Module):
    """Convolutions with group norms on images of three sizes, joined by their channels."""

    def __init__(self) -> None:
        super().__init__()

        def block(inputs: int, outputs: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.SiLU())

        self.down = nn.ModuleList([block(3, 32), block(32, 64), block(64, 64)])
        self.up = nn.ModuleList([block(128, 32), block(64, 32)])
        self.wider, self.out = nn.Upsample(scale_factor=2), nn.Conv2d(32, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.down[0](x)
        second = self.down[1](F.max_pool2d(first, 2))
        third = self.down[2](F.max_pool2d(second, 2))
        y = self.up[0](torch.cat([self.wider(third), second], 1))
        result: Tensor = self.out(self.up[1](torch.cat([self.wider(y), first], 1)))
        return result


def unet() -> Made:
    return Made(UNet, torch.randn(8, 3, 48, 48), torch.randn(8, 3, 48, 48), F.mse_loss)


class Recurrent(nn.Module):
    """A gated cell that is written out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 3 * WIDTH), nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        hidden = x.new_zeros(x.shape[0], WIDTH)
        for step in range(x.shape[1]):
            a, b = self.first(x[:, step]).chunk(3, -1), self.second(hidden).chunk(3, -1)
            keep = torch.sigmoid(a[1] + b[1])
            new = torch.tanh(a[2] + torch.sigmoid(a[0] + b[0]) * b[2])
            hidden = (1 - keep) * new + keep * hidden
        return hidden


def recurrent() -> Made:
    return Made(Recurrent, torch.randn(64, 32, 64), torch.randn(64, WIDTH), F.mse_loss)


MODELS: Mapping[str, Callable[[], Made]] = {
    made.__name__: made
    for made in (
        *(gpt2, llama, bert, albert, mixtral, vit, convnext),
        *(encoder, lstm, mixer, unet, recurrent),
    )
}


def training_of(size: str) -> Training:
    torch.manual_seed(1)
    made = MODELS[size]()
    return Training(made.model, made.loss, adamw, made.inputs, made.target)


def reference(size: str) -> Contender:
    return by_torch(training_of(size))


def contenders(size: str) -> dict[str, Callable[[], Contender]]:
    return usual_contenders(training_of(size))


# Of the weights, which three steps change by some 1e-2. AdamW amplifies rounding errors of small gradients.
WORKLOAD = Workload(list(MODELS), reference, contenders, checked_steps=3, tolerance=1e-3)
