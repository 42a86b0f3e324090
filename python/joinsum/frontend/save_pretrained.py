"""`save_pretrained`, as transformers, peft and diffusers have it, of models whose parameters are distributed."""

from __future__ import annotations

from typing import Any

from joinsum.base.trees import tree_leaves
from joinsum.cluster.context import context
from joinsum.distributed.block_tensor import is_distributed
from joinsum.distributed.full_state import full_state_dict
from joinsum.frontend.model_method import ModelMethod

__all__ = ["SavePretrained"]


class SavePretrained(ModelMethod):
    """A model's method `save_pretrained`, which gets unsharded tensors. All ranks of a process group call; the first
    one writes, and the others return None when it is done."""

    name = "save_pretrained"

    def __call__(self, *args: Any, state_dict: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        """As the library's. `state_dict` are tensors to write instead of the model's; if none of them is distributed,
        a rank may call alone."""
        if state_dict is not None and not any(map(is_distributed, tree_leaves(state_dict))):
            return self._original(*args, state_dict=state_dict, **kwargs)
        current = context()
        full = full_state_dict(self._model if state_dict is None else state_dict, ranks="first")
        given = {} if state_dict is None else {"state_dict": full}
        result = None
        with current.preparing("save_pretrained"):
            if 0 in current.local_sites:
                self._model.state_dict = lambda *_, **__: full  # type: ignore[assignment, method-assign]
                try:
                    result = self._original(*args, **given, **kwargs)
                finally:
                    del self._model.state_dict
        current.transport.agree("save_pretrained", "the files are written")
        return result
