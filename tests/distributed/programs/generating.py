"""A scene of generation by a model whose parameters and key-value cache are on the ranks."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import joinsum
import torch
from joinsum import DistributedTensor
from stage import Scenes, enter, on_group, scene

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))
from training import CUTTING, EVERYTHING

SCENES: Scenes = {}


def llama() -> Any:
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    return transformers.LlamaForCausalLM(config).eval()


@scene(SCENES)
def tokens_are_those_of_the_plain_model() -> dict[str, list[list[int]]]:
    """Greedy ones, after a prompt that has no batch to divide, so that sites divide the heads; of a sample also in the
    nightly run."""
    torch._dynamo.reset()
    enter(on_group()).cluster = CUTTING
    plain = llama()
    model = copy.deepcopy(plain)
    ids = torch.randint(3, 32, (1, 4), generator=torch.Generator().manual_seed(1))
    prompts = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    joinsum.distribute(model, prompts)
    assert all(isinstance(each, DistributedTensor) for each in model.parameters())
    tokens = {}
    for how in ("greedy", "sampled") if EVERYTHING else ("greedy",):
        options = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": how == "sampled"}
        results = []
        for each in (plain, model):
            torch.manual_seed(7)
            results.append(each.generate(**prompts, return_dict_in_generate=True, **options))
        wanted, found = results
        assert found.sequences.shape == (1, 9)
        assert torch.equal(found.sequences, wanted.sequences)
        keys = found.past_key_values.layers[0].keys
        assert isinstance(keys, DistributedTensor)
        assert not keys.physical_type.placement.fully_replicated
        tokens[how] = found.sequences.tolist()
    return tokens
