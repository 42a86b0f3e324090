"""Plans and inputs for comparing transports: hand-written ones for every operator, and random ones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import joinsum
import torch
from joinsum.base.dtypes import torch_dtype

# Logical plans; T stands for the dtype. Cuts are uneven, and some have more or fewer parts than there are sites.
LOGICAL = {
    "product": "input A: T[12,10]<4,3>\ninput B: T[10,7]<3,2>\n"
    "output Z = aggregate[0, 2; add](join[1; 0; matmul](A, B))",
    "few parts": "input A: T[5,3]<1,1>\ninput B: T[3,4]<1,2>\n"
    "output Z = aggregate[0, 2; add](join[1; 0; matmul](A, B))",
    "one element each": "input A: T[5,5]<5,5>\noutput Z = aggregate[1; add](A)",
    "greatest": "input A: T[10,4]<5,2>\noutput Y = aggregate[0; max](A)\noutput Z = aggregate[; min](A)",
    "elementwise": "input A: T[7,6]<3,2>\ninput B: T[7,6]<3,2>\n"
    "output Z = transform[relu](join[0, 1; 0, 1; sub](A, B))",
    "filtered to nothing": "input A: T[6,6]<3,3>\noutput Z = filter[k0 < 0](A)",
    "filtered to a corner": "input A: T[6,6]<3,3>\noutput Z = rekey[(k1, k0)](filter[k0 == 2 and k1 == 0](A))",
    "one key for two": "input A: T[8,3]<4,1>\noutput Z = aggregate[0; add](rekey[(k0 // 2, k1)](A))",
    "cut and joined": "input A: T[8,5]<2,2>\nt = tile[0, 2](A)\noutput Y = t\noutput Z = transform[negate](A)",
    "side by side": "input A: T[6,9]<2,3>\noutput Z = concat[1, 1](A)",
    "written": "input A: T[8,6]<4,3>\ninput B: T[8,6]<4,3>\noutput Z = upsert(A, filter[k0 % 2 == 1](B))",
    "twice": "input A: T[6,6]<3,3>\noutput Z = aggregate[0, 2; add](join[1; 0; matmul](A, A))\noutput A2 -> A = A",
}

# Physical plans on one grid axis and on two; G stands for the grid.
ONE_AXIS = {
    "broadcast": "input X: T[7,5]<3,2> (0)\noutput Z = broadcast(X)",
    "shuffle": "input X: T[7,5]<3,2> (0)\noutput Z = shuffle[1](X)",
    "from copies": "input X: T[7,5]<3,2> (*)\noutput Z = shuffle[0](X)",
    "sum for all": "input X: T[9,5]<3,2> (0)\noutput Z = broadcast(local_aggregate[1; add](X))",
    "one block for all": "input X: T[9,5]<3,1> (0)\noutput Z = broadcast(local_aggregate[; add](X))",
    "product for all": "input X: T[9,5]<3,1> (0)\noutput Z = broadcast(local_aggregate[; mul](X))",
    "least for all": "input X: T[9,5]<3,1> (0)\noutput Z = broadcast(local_aggregate[; min](X))",
    "sum in shares": "input X: T[6,9]<3,5> (0)\noutput Z = shuffle[0](local_aggregate[1; add](X))",
    "greatest in shares": "input X: T[6,9]<3,5> (0)\noutput Z = shuffle[0](local_aggregate[1; max](X))",
    "empty parts": "input X: T[7,5]<3,2> (0)\noutput Z = broadcast(local_filter[k0 < 1](X))",
    "scattered": "input X: T[8,5]<4,1> (0)\noutput Z = broadcast(local_map[(k0 // 2, k1); id](X))",
    "written where it lies": "input X: T[8,5]<4,1> (0)\ninput Y: T[8,5]<4,1> (0)\n"
    "output Z = broadcast(upsert(X, filter[k0 > 1](map[(3 - k0, k1); id](Y))))",
    "product by rows": "input X: T[7,5]<3,2> (0)\ninput W: T[5,4]<2,2> (0)\n"
    "output Z = local_aggregate[0, 2; add](local_join[1; 0; matmul](X, broadcast(W)))",
    "product by sums": "input X: T[7,5]<3,2> (1)\ninput W: T[5,4]<2,2> (0)\n"
    "output Z = shuffle[0](local_aggregate[0, 2; add](local_join[1; 0; matmul](X, W)))",
}
TWO_AXES = {
    "broadcast one axis": "input X: T[7,5]<3,2> (0, 1)\noutput Y = broadcast[0](X)\noutput Z = broadcast[1](X)",
    "turn": "input X: T[7,5]<3,2> (0, 1)\noutput Z = shuffle[(1, 0)](X)",
    "split further": "input X: T[7,5]<3,2> (0, *)\noutput Z = shuffle[(0, 0)](X)",
    "sum one axis": "input X: T[9,5]<3,2> (0, 1)\noutput Z = broadcast[0](local_aggregate[1; add](X))",
    "one axis at a time": "input X: T[9,6]<3,2> (0, 1)\n"
    "output Z = broadcast[1](broadcast[0](local_aggregate[; add](X)))",
    "both axes in shares": "input X: T[6,9]<3,5> (0, 0)\noutput Z = shuffle[(0, 0)](local_aggregate[1; add](X))",
    "2-D product": "input X: T[7,5]<3,2> (0, 1)\ninput W: T[5,4]<2,2> (*, 0)\n"
    "output Z = shuffle[(0, 1)](local_aggregate[0, 2; add](local_join[1; 0; matmul](X, W)))",
}
OPERATORS = {"broadcast", "shuffle", "local_join", "local_aggregate", "local_filter", "local_map", "local_upsert"}


@dataclass(frozen=True)
class Case:
    name: str
    plan: joinsum.TraPlan | joinsum.IaPlan
    inputs: dict[str, torch.Tensor]


def written_cases(dtype: str, grid: str) -> Iterator[Case]:
    """The hand-written plans that fit the grid."""
    physical = ONE_AXIS if "x" not in grid else TWO_AXES
    for name, text in LOGICAL.items():
        yield case_of(name, "tra\n" + text.replace("T[", dtype + "["))
    for name, text in physical.items():
        yield case_of(name, f"ia on {grid}\n" + text.replace("T[", dtype + "["))


def case_of(name: str, text: str) -> Case:
    plan = joinsum.parse(text)
    generator = torch.Generator().manual_seed(len(text))
    inputs = {}
    for key, type_ in plan.inputs.items():
        relation = type_.relation if isinstance(type_, joinsum.PhysicalType) else type_
        inputs[key] = numbers([axis.extent for axis in relation.axes], torch_dtype(relation.dtype), generator)
    return Case(name, plan, inputs)


def numbers(shape: list[int], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    return torch.randint(-3, 4, shape, generator=generator).to(dtype)


def random_case(seed: int, dtype: torch.dtype) -> Case:
    """A few random operators on random relations, each that its operands' types allow."""
    dice = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    inputs: dict[str, torch.Tensor] = {}
    pool: list[joinsum.Relation] = []
    for name in "AB":
        inputs[name] = numbers([dice.randint(1, 8) for _ in range(2)], dtype, generator)
        pool.append(joinsum.relation(inputs[name], parts=[dice.randint(1, 4) for _ in range(2)], name=name))
    for _ in range(200):
        try:
            result = random_operator(dice, pool)
        except (joinsum.PlanError, joinsum.KernelError):
            continue
        if result.type.tuples <= 100 and result.type.elements <= 2000:
            pool.append(result)
        if len(pool) == 7:
            break
    plan = joinsum.plan(Z=pool[-1], Y=pool[-2])
    return Case(f"random {seed}", plan, {name: inputs[name] for name in plan.inputs})


def random_operator(dice: random.Random, pool: list[joinsum.Relation]) -> joinsum.Relation:
    one, other = dice.choice(pool[-2:]), dice.choice(pool)
    dims = dice.sample(range(one.type.arity), dice.randint(0, one.type.arity))
    match dice.randrange(8):
        case 0 | 1:
            count = dice.randint(0, min(one.type.arity, other.type.arity))
            on = dice.sample(range(one.type.arity), count), dice.sample(range(other.type.arity), count)
            return one.join(other, on=on, kernel=dice.choice(["matmul", "matmul", "add", "sub"]))
        case 2:
            return one.aggregate(keep=dims, kernel=dice.choice(["add", "max"]))
        case 3:
            return one.rekey("(" + ", ".join(f"k{dim}" for dim in reversed(range(one.type.arity))) + ",)")
        case 4:
            return one.filter(f"k0 < {dice.randint(1, 3)}")
        case 5:
            return one.tile(axis=dice.randint(0, 1), size=dice.randint(1, 3))
        case 6:
            return one.upsert(other)
        case _:
            return one.transform(dice.choice(["relu", "transpose", "scale[2]"]))
