"""The exceptions that joinsum raises. Messages read `operator: what is wrong: name=value, ...`.

| class             | also a         | whose fault                                                        |
|-------------------|----------------|--------------------------------------------------------------------|
| `PlanError`       | `ValueError`   | the caller's: a plan, type or argument that cannot be right        |
| `KernelError`     | `RuntimeError` | a kernel that is unknown, misdeclared or failed on its operands    |
| `TransportError`  | `RuntimeError` | a site that is lost, silent or in disagreement                     |
| `CaptureError`    | `RuntimeError` | the caller's: code that cannot be captured as one graph            |
| `CheckpointError` | `ValueError`   | the caller's: a file that is no checkpoint, or of something else   |
| `InternalError`   | `RuntimeError` | joinsum's: one of its own invariants does not hold; please report  |

All derive from `Error`. After any of them the process stays usable: no argument of the failed call has changed, except
the inputs of a run that its outputs are tied to (`joinsum.run`).

>>> import joinsum, torch
>>> x = joinsum.relation(torch.ones(2, 2), parts=(2, 1))
>>> try:
...     x.join(x, on=([0, 1], [0]), kernel="mul")
... except joinsum.PlanError as error:
...     print(error)
join: key lists differ in length: left=[0, 1], right=[0]
"""

from joinsum._C import Error, InternalError, KernelError, PlanError, TransportError

__all__ = ["CaptureError", "CheckpointError", "Error", "InternalError", "KernelError", "PlanError", "TransportError"]


class CaptureError(Error, RuntimeError):
    """Code that cannot be captured as one graph, with its place and what to do."""


class CheckpointError(Error, ValueError):
    """A file or folder that is no checkpoint, or one of something else; the message begins with its path."""


# Tracebacks show the public names, as they do for the errors that the core defines.
for _error in (CaptureError, CheckpointError):
    _error.__module__ = "joinsum"
