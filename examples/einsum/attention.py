"""Softmax attention as a graph of einsums, planned as a whole and run on four sites; its gradients are einsums, too."""

from __future__ import annotations

import joinsum
import torch

# b: batch, h: heads, q and k: places in the sequence, d: elements of a head.
GRAPH = """einsum
input Q: f64[2,8,64,16]
input K: f64[2,8,64,16]
input V: f64[2,8,64,16]
small = einsum[bhqd->bhqd; scale[0.25]; add](Q)
scores = einsum[bhqd,bhkd->bhqk; mul; add](small, K)
most = einsum[bhqk->bhq; id; max](scores)
weights = einsum[bhqk,bhq->bhqk; sub | exp; add](scores, most)
total = einsum[bhqk->bhq; id; add](weights)
share = einsum[bhqk,bhq->bhqk; div; add](weights, total)
output Z = einsum[bhqk,bhkd->bhqd; mul; add](share, V)
"""


def run(graph: joinsum.Graph, inputs: dict[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], str]:
    """The outputs and the bytes that moved. Inputs are divided by batch and sequence, or by heads."""
    program = graph.lower(joinsum.sites())
    place = {}
    for name, type_ in program.inputs.items():
        _, heads, sequence, _ = (axis.key_dim for axis in type_.axes)
        place[name] = [0, heads if sequence is None else sequence]
    found = joinsum.optimize(program, place, minimize="wire_bytes")
    results = joinsum.run(found.plan, inputs)
    moved = f"bytes predicted {found.cost.wire_bytes:,}, sent {joinsum.trace().bytes_sent:,}"
    return {name: result.to_tensor() for name, result in results.items()}, moved


def main() -> None:
    joinsum.init(sites=4)
    graph = joinsum.Graph.parse(GRAPH)
    backward = graph.gradient(["Q", "K", "V"])
    generator = torch.Generator().manual_seed(0)
    inputs = {
        name: torch.randn(value.shape, generator=generator, dtype=torch.float64).requires_grad_()
        for name, value in graph.inputs.items()
    }
    arriving = torch.randn(2, 8, 64, 16, generator=generator, dtype=torch.float64)
    wanted = torch.nn.functional.scaled_dot_product_attention(*inputs.values())
    slopes = torch.autograd.grad(wanted, list(inputs.values()), arriving)

    values = {name: x.detach() for name, x in inputs.items()}
    forward, moved = run(graph, values)
    print(f"forward: {moved}")
    print(f"equal to torch: {torch.allclose(forward['Z'], wanted, rtol=1e-10, atol=1e-12)}")
    gradients, moved = run(backward, values | {"d_Z": arriving})
    print(f"backward, {str(backward).count('einsum[')} einsums: {moved}")
    for name, slope in zip(inputs, slopes, strict=True):
        print(f"d_{name} equal to torch: {torch.allclose(gradients[f'd_{name}'], slope, rtol=1e-10, atol=1e-12)}")
    joinsum.init()


if __name__ == "__main__":
    main()
