"""Plans whose time is predicted and measured: matrix products, a two-layer network, nearest neighbours."""

from __future__ import annotations

import re

from joinsum.extreme.plans import PLANS, Sizes, Training, step_plan

__all__ = ["plans"]


def plans(ranks: int, quick: bool) -> dict[str, str]:
    """Text of each plan by name, for 2 or 4 sites."""
    scale = 4 if quick else 1
    found: dict[str, str] = {}
    for size in (512, 1024, 2048):
        found |= {f"product {size}: {name}": text for name, text in products(ranks, size // scale).items()}
    step = Training("sgd", loss=False)
    for sizes in ((256, 2048, 512, 1024), (2048, 1024, 256, 512)):
        points, features, hidden, labels = (size // scale for size in sizes)
        scaled = Sizes(points, features, hidden, labels)
        for name in PLANS:
            text = untied(step_plan(scaled, ranks, name, step))
            found[f"network {'x'.join(map(str, sizes))}: {name} parallel"] = text
    for points, dims in ((20000, 256), (3000, 1024)):
        for name, text in neighbours(ranks, points // scale, dims // scale).items():
            found[f"neighbours {points}x{dims}: {name}"] = text
    return found


def untied(text: str) -> str:
    """The plan with outputs that overwrite no input, so that it can run again on the same ones."""
    return re.sub(r"output (\w+) -> \w+", r"output new_\1", text)


def _header(ranks: int) -> tuple[str, str]:
    """The first line, and a placement that divides one dimension along every axis, to be formatted."""
    return (f"ia on {ranks}\n", "({0})") if ranks < 4 else ("ia on 2x2\n", "({0}, {0})")


def products(ranks: int, size: int) -> dict[str, str]:
    """C = A B of square matrices. Names and first three plans: TRA paper, section 5.3."""
    header, along = _header(ranks)
    rows, inner = along.format(0), along.format(1)
    kind = f"f32[{size},{size}]<{ranks},{ranks}>"
    summed = "agg[0, 2; add](join[1; 0; matmul]({}, {}))"
    found = {
        "broadcast": f"{header}input A: {kind} {rows}\ninput B: {kind} {rows}\n"
        f"output C = {summed.format('A', 'broadcast(B)')}\n",
        "cross": f"{header}input A: {kind} {inner}\ninput B: {kind} {rows}\n"
        f"output C = shuffle[{rows}]({summed.format('A', 'B')})\n",
        "cross, result everywhere": f"{header}input A: {kind} {inner}\ninput B: {kind} {rows}\n"
        f"output C = broadcast({summed.format('A', 'B')})\n",
        "turned": f"{header}input A: {kind} {inner}\ninput B: {kind} {inner}\n"
        f"output C = {summed.format(f'shuffle[{rows}](A)', 'broadcast(B)')}\n",
    }
    if ranks == 4:
        found["two dimensions"] = (
            f"{header}input A: {kind} (0, 1)\ninput B: {kind} (0, 1)\n"
            f"output C = {summed.format('broadcast[1](A)', 'broadcast[0](B)')}\n"
        )
    return found


def neighbours(ranks: int, points: int, dims: int) -> dict[str, str]:
    """Squared distances (x - q) M (x - q)ᵀ of all points X to one query. Source: TRA paper, sections 2 and 5.3."""
    header, along = _header(ranks)
    shapes = {"X": (points, dims), "M": (dims, dims)}
    kinds = {name: f"f32[{a},{b}]<{ranks},{ranks}>" for name, (a, b) in shapes.items()} | {"q": f"f32[{dims}]<{ranks}>"}
    equations = (
        "D = join[1; 0; sub]({X}, {q})\n"
        "U = agg[0, 2; add](join[1; 0; matmul](D, {M}))\n"
        "P = join[0, 1; 0, 1; mul]({U}, D)\n"
        "S = agg[0; add](map[(k0, k1); row_sum](P))\n"
        "output distances = broadcast(S)\n"
    )
    split = {name: along.format(0) for name in kinds}
    horizontal = "".join(f"input {name}: {kinds[name]} {split[name]}\n" for name in kinds)
    vertical = horizontal.replace(f"{kinds['X']} {split['X']}", f"{kinds['X']} {along.format(1)}")
    return {
        "horizontal": header + horizontal + equations.format(X="X", q="broadcast(q)", M="broadcast(M)", U="U"),
        "vertical": header + vertical + equations.format(X="X", q="q", M="M", U=f"shuffle[{along.format(1)}](U)"),
    }
