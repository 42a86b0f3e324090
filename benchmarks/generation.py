"""What a generated token costs on two ranks: greedy `model.generate` of a LLaMA of Hugging Face's.

| contender | what runs |
|---|---|
| plain | the model as it comes, whole on each rank |
| tensor parallel | its projections divided by torch's `parallelize_module` |
| joinsum | the model after `joinsum.distribute` |

Each writes texts after prompts of some lengths, in turns; the first text of each length is left out of the figures.

    python benchmarks/generation.py [--layers N] [--width N] [--batch N] [--tokens N] [--turns N] [--json FILE]
"""

from __future__ import annotations

import copy
import json
import logging
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import click
import joinsum
import torch
import torch.distributed as dist
from frame.launch import run_ranks, threads_of_rank
from transformers import LlamaConfig, LlamaForCausalLM

LIMIT = 1200.0  # seconds after which ranks have failed
PROMPTS = (32, 24)
VOCABULARY = 1000


def llama(layers: int, width: int) -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=8,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval()


def tensor_parallel(model: Any) -> Any:
    """The model with its projections divided over the ranks, as torch's tutorial of tensor parallelism has it."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    columns = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
    plan: dict[str, Any] = {f"model.layers.*.{name}": ColwiseParallel() for name in columns}
    plan |= {f"model.layers.*.{name}": RowwiseParallel() for name in ("self_attn.o_proj", "mlp.down_proj")}
    plan["lm_head"] = ColwiseParallel(output_layouts=Replicate())
    return parallelize_module(model, mesh, plan)


def measured(layers: int, width: int, batch: int, tokens: int, turns: int) -> dict[str, Any]:
    """On this rank, for each contender: seconds of its first text, of the first text after a prompt of another length,
    and the median of later ones for each token."""
    plain = llama(layers, width)
    prompts = [torch.randint(3, VOCABULARY, (batch, length)) for length in PROMPTS]
    models = {"plain": plain, "tensor parallel": tensor_parallel(copy.deepcopy(plain))}
    planned = copy.deepcopy(plain)
    begin = time.perf_counter()
    models["joinsum"] = joinsum.distribute(planned, {"input_ids": prompts[0]})
    found: dict[str, Any] = {"distribute": time.perf_counter() - begin}
    texts = {}

    def text(name: str, ids: torch.Tensor) -> float:
        dist.barrier()
        begin = time.perf_counter()
        texts[name] = models[name].generate(
            ids, attention_mask=torch.ones_like(ids), min_new_tokens=tokens, max_new_tokens=tokens, do_sample=False
        )
        return time.perf_counter() - begin

    for name in models:
        found[name] = {"first": [text(name, ids) for ids in prompts], "tokens": []}
    for ids in prompts:
        for _ in range(turns):
            for name in models:
                found[name]["tokens"].append(text(name, ids) / tokens)
        assert all(torch.equal(each, texts["plain"]) for each in texts.values()), "tokens differ"
    return found


@click.command()
@click.option("--layers", default=4, show_default=True)
@click.option("--width", default=256, show_default=True)
@click.option("--batch", default=1, show_default=True)
@click.option("--tokens", default=64, show_default=True)
@click.option("--turns", default=5, show_default=True)
@click.option("--json", "path", type=click.Path(path_type=Path), help="Write the figures to this file.")
@click.option("--rank-out", type=click.Path(path_type=Path), hidden=True)
def main(
    layers: int, width: int, batch: int, tokens: int, turns: int, path: Path | None, rank_out: Path | None
) -> None:
    """Prints what a token costs each contender."""
    sizes = {"--layers": layers, "--width": width, "--batch": batch, "--tokens": tokens, "--turns": turns}
    if rank_out is not None:
        logging.getLogger("transformers").setLevel(logging.ERROR)
        torch.set_num_threads(threads_of_rank(2))
        dist.init_process_group("gloo")
        joinsum.init(plan_cache=False)
        found = measured(layers, width, batch, tokens, turns)
        if dist.get_rank() == 0:
            rank_out.write_text(json.dumps(found), encoding="utf-8")
        dist.destroy_process_group()
        return
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        command = [sys.executable, __file__, "--rank-out", str(out)]
        command += [str(each) for pair in sizes.items() for each in pair]
        threads = str(threads_of_rank(2))
        run_ranks(2, "open", command, {"OMP_NUM_THREADS": threads, "TORCH_CPP_LOG_LEVEL": "ERROR"}, LIMIT)
        found = json.loads(out.read_text(encoding="utf-8"))
    print(f"llama of {layers} layers, width {width}, 2 ranks of {os.cpu_count()} cores, batch {batch}, {tokens} tokens")
    print(f"joinsum.distribute: {found.pop('distribute'):.1f} s")
    for name, each in found.items():
        first = " and ".join(f"{seconds:.2f}" for seconds in each["first"])
        print(f"{name:<16} {1e3 * median(each['tokens']):7.2f} ms a token; first text of each length {first} s")
    if path is not None:
        path.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
