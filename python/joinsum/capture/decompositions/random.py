"""Seeds of the random operators of csrc/kernels/torch_call."""

__all__ = ["SEEDS"]

SEEDS = 1 << 53  # of a run, from zero: integers that a double has, as sites compare them
