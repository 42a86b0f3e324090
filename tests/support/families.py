"""Families of Hugging Face models, built small from their configs: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers

__all__ = ["FAMILIES", "Family"]

BATCH, LENGTH, VOCABULARY = 4, 16, 96
Batch = dict[str, torch.Tensor]


def _tokens(length: int = LENGTH) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (BATCH, length), generator=torch.Generator().manual_seed(7))


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(7))


def _padded(tokens: torch.Tensor) -> torch.Tensor:
    """A mask of which one sequence lacks its last tokens."""
    mask = torch.ones_like(tokens)
    mask[1, -3:] = 0
    return mask


def text() -> Batch:
    """Tokens that are their own labels, one sequence shorter than the others."""
    tokens = _tokens()
    mask = _padded(tokens)
    return {"input_ids": tokens, "attention_mask": mask, "labels": tokens.masked_fill(mask == 0, -100)}


def full_text() -> Batch:
    """Tokens that are their own labels, all of one length, without a mask."""
    return {"input_ids": _tokens(), "labels": _tokens()}


def translation() -> Batch:
    """Tokens of a source, and labels of another length."""
    tokens = _tokens()
    return {"input_ids": tokens, "attention_mask": _padded(tokens), "labels": _tokens(12)}


def images() -> Batch:
    """Images with a class each."""
    return {"pixel_values": _normal(BATCH, 3, 32, 32), "labels": torch.arange(BATCH) % 3}


def sound() -> Batch:
    """Waves with a class each."""
    return {"input_values": _normal(BATCH, 800), "labels": torch.arange(BATCH) % 3}


def speech() -> Batch:
    """Spectrograms with a text each."""
    return {"input_features": _normal(BATCH, 8, 32), "labels": _tokens(12)}


def captions() -> Batch:
    """Images with a text each."""
    tokens = _tokens()
    tokens[:, -1] = VOCABULARY - 1
    mask = torch.ones_like(tokens)
    return {"input_ids": tokens, "attention_mask": mask, "pixel_values": _normal(BATCH, 3, 32, 32)}


@dataclass(frozen=True)
class Family:
    """A model of transformers: its class, what its config differs in, and a batch.

    dtype      of parameters: float64 where rounding in float32 is as large as what is looked for
    prepared   what is done to the model before it is compiled, as Dynamo does not trace it otherwise
    remark     the same in words
    """

    name: str
    model: str
    batch: Callable[[], Batch]
    config: Mapping[str, Any] = field(default_factory=dict)
    call: Mapping[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32
    prepared: Callable[[torch.nn.Module, Mapping[str, Any]], None] | None = None
    remark: str = ""

    def build(self) -> torch.nn.Module:
        """The model in train mode without dropout; equal weights at every call."""
        model_class = getattr(transformers, self.model)
        torch.manual_seed(0)
        model: torch.nn.Module = model_class(_without_chance(model_class.config_class(**self.config)))
        if getattr(model, "loss_type", "") is None:
            model.loss_type = "ForCausalLM"  # type: ignore[assignment]
        return model.to(self.dtype).train()

    def as_it_comes(self, attention: str) -> torch.nn.Module:
        """The model as its class makes it from a config, in train mode without dropout, with attention "eager" or
        "sdpa". Raises ValueError for a model that has no such attention."""
        model_class = getattr(transformers, self.model)
        config = {name: value for name, value in self.config.items() if name != "use_cache"}
        torch.manual_seed(0)
        config = _without_chance(model_class.config_class(**config))
        model: torch.nn.Module = model_class._from_config(config, attn_implementation=attention)
        return model.train()

    def call_as_it_comes(self) -> dict[str, Any]:
        """Arguments of such a model, whose result has an attribute `loss`."""
        return {**self.batch(), **self.call}

    def inputs(self) -> dict[str, Any]:
        """Arguments of the model, in its dtype; it returns the loss first."""
        inputs = {name: x.to(self.dtype) if x.is_floating_point() else x for name, x in self.batch().items()}
        return {**inputs, **self.call, "return_dict": False}


def _wav2vec2(model: Any, inputs: Mapping[str, Any]) -> None:
    model.wav2vec2.feature_extractor._requires_grad = False
    with torch.no_grad():
        model(**inputs)


def _without_chance(config: Any) -> Any:
    for each in [config, *(x for x in vars(config).values() if isinstance(x, transformers.PretrainedConfig))]:
        for name, value in list(vars(each).items()):
            if "drop" in name and isinstance(value, float):
                setattr(each, name, 0.0)
    return config


# --- configs ----------------------------------------------------------------------------------------------------------

_LAYERS = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32, "intermediate_size": 64}
_TEXT = {**_LAYERS, "vocab_size": VOCABULARY, "max_position_embeddings": 64, "pad_token_id": 0}
_GROUPED = {**_TEXT, "num_key_value_heads": 2}
_GPT2 = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
_IDS = {"bos_token_id": 1, "eos_token_id": 2}
_GPTS = {**_GPT2, **_IDS, "use_cache": False}
_SEQ2SEQ = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": None,
    "use_cache": False,
    **_IDS,
}
_T5 = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
    "use_cache": False,
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
_IMAGES = {**_LAYERS, "image_size": 32, "patch_size": 8, "num_labels": 3}
_DECODER = {**_GROUPED, **_IDS, "use_cache": False}

FAMILIES = {
    family.name: family
    for family in [
        # Encoders of text.
        Family("bert", "BertForMaskedLM", text, _TEXT),
        Family("roberta", "RobertaForMaskedLM", text, {**_TEXT, **_IDS}),
        Family(
            "distilbert",
            "DistilBertForMaskedLM",
            text,
            {**_GPT2, "dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4},
        ),
        Family("albert", "AlbertForMaskedLM", text, {**_TEXT, "embedding_size": 16}),
        Family("electra", "ElectraForMaskedLM", text, {**_TEXT, "embedding_size": 16}),
        Family(
            "deberta_v2",
            "DebertaV2ForMaskedLM",
            text,
            {**_TEXT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8},
        ),
        Family("mpnet", "MPNetForMaskedLM", text, {**_TEXT, **_IDS}),
        Family("modernbert", "ModernBertForMaskedLM", text, {**_TEXT, **_IDS, "cls_token_id": 1, "sep_token_id": 2}),
        Family(
            "funnel",
            "FunnelForMaskedLM",
            text,
            {
                "vocab_size": VOCABULARY,
                "block_sizes": [1, 1],
                "num_decoder_layers": 1,
                "d_model": 32,
                "n_head": 4,
                "d_head": 8,
                "d_inner": 64,
            },
        ),
        # Decoders of text.
        Family("gpt2", "GPT2LMHeadModel", text, _GPTS),
        Family(
            "gpt_neo",
            "GPTNeoForCausalLM",
            text,
            {
                "vocab_size": VOCABULARY,
                "hidden_size": 32,
                "num_layers": 2,
                "num_heads": 4,
                "attention_types": [[["global", "local"], 1]],
                "window_size": 4,
                "max_position_embeddings": 64,
                "use_cache": False,
                **_IDS,
            },
        ),
        Family("gptj", "GPTJForCausalLM", text, {**_GPTS, "rotary_dim": 4}),
        Family("gpt_neox", "GPTNeoXForCausalLM", text, {**_TEXT, **_IDS, "use_cache": False}),
        Family(
            "opt",
            "OPTForCausalLM",
            text,
            {**_TEXT, **_IDS, "ffn_dim": 64, "word_embed_proj_dim": 32, "use_cache": False},
        ),
        Family(
            "bloom",
            "BloomForCausalLM",
            text,
            {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 4, "use_cache": False, **_IDS},
        ),
        Family("falcon", "FalconForCausalLM", text, {**_TEXT, **_IDS, "use_cache": False}),
        Family("llama", "LlamaForCausalLM", text, _DECODER),
        Family("mistral", "MistralForCausalLM", text, {**_DECODER, "sliding_window": 8}),
        Family("qwen2", "Qwen2ForCausalLM", text, _DECODER),
        Family("qwen3", "Qwen3ForCausalLM", text, {**_DECODER, "head_dim": 8}),
        Family("gemma", "GemmaForCausalLM", text, {**_DECODER, "head_dim": 8}),
        Family("gemma2", "Gemma2ForCausalLM", text, {**_DECODER, "head_dim": 8, "sliding_window": 8}),
        Family("phi", "PhiForCausalLM", text, _DECODER),
        Family("phi3", "Phi3ForCausalLM", text, _DECODER),
        Family("stablelm", "StableLmForCausalLM", text, _DECODER),
        Family("starcoder2", "Starcoder2ForCausalLM", text, _DECODER),
        Family("cohere", "CohereForCausalLM", text, _DECODER),
        Family("mixtral", "MixtralForCausalLM", text, {**_DECODER, "num_local_experts": 4}),
        Family(
            "qwen3_moe",
            "Qwen3MoeForCausalLM",
            text,
            {**_DECODER, **_EXPERTS, "head_dim": 8, "moe_intermediate_size": 16},
        ),
        Family(
            "mamba",
            "MambaForCausalLM",
            full_text,
            {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "use_cache": False},
        ),
        # From text to text.
        Family("t5", "T5ForConditionalGeneration", translation, _T5),
        Family("bart", "BartForConditionalGeneration", translation, _SEQ2SEQ),
        Family("pegasus", "PegasusForConditionalGeneration", translation, _SEQ2SEQ),
        # Images and sound.
        Family("vit", "ViTForImageClassification", images, _IMAGES),
        Family(
            "swin",
            "SwinForImageClassification",
            images,
            {
                "image_size": 32,
                "patch_size": 2,
                "embed_dim": 16,
                "depths": [2, 2],
                "num_heads": [2, 4],
                "window_size": 4,
                "num_labels": 3,
            },
        ),
        Family(
            "convnext",
            "ConvNextForImageClassification",
            images,
            {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "image_size": 32, "num_labels": 3},
        ),
        Family(
            "resnet",
            "ResNetForImageClassification",
            images,
            {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic", "num_labels": 3},
        ),
        Family(
            "clip",
            "CLIPModel",
            captions,
            {
                "text_config": {**_TEXT, **_IDS, "eos_token_id": VOCABULARY - 1},
                "vision_config": _IMAGES,
                "projection_dim": 16,
            },
            {"return_loss": True},
        ),
        Family(
            "whisper",
            "WhisperForConditionalGeneration",
            speech,
            {
                **_SEQ2SEQ,
                "num_mel_bins": 8,
                "max_source_positions": 16,
                "max_target_positions": 32,
                "suppress_tokens": None,
                "begin_suppress_tokens": None,
            },
        ),
        Family(
            "wav2vec2",
            "Wav2Vec2ForSequenceClassification",
            sound,
            {
                **_LAYERS,
                "conv_dim": [8, 8],
                "conv_stride": [5, 4],
                "conv_kernel": [10, 4],
                "num_feat_extract_layers": 2,
                "num_conv_pos_embeddings": 8,
                "num_conv_pos_embedding_groups": 2,
                "mask_time_prob": 0.0,
                "apply_spec_augment": False,
                "classifier_proj_size": 16,
                "num_labels": 3,
            },
            prepared=_wav2vec2,
            remark="it has run once without a gradient, as its first call takes a lock, and `_requires_grad` of its "
            "feature extractor is off, which only checkpointing needs and Dynamo does not trace",
        ),
    ]
}
