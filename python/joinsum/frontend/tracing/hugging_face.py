"""What Hugging Face's models do that Dynamo does not trace, done before or in other words."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import torch

__all__ = ["prepare_models"]


def prepare_models(modules: Iterable[torch.nn.Module]) -> None:
    """Installs the hooks that record hidden states and attentions, which the first call of a model installs under a
    lock, and stops feature extractors from requiring gradients of waves, which only reentrant checkpointing needs.
    Dynamo traces neither. Results and gradients of parameters stay as they are. Adapters of peft (DoRA) read weights
    that are not quantized without asking for the name of their class."""
    _trace_whole_weights()
    library = sys.modules.get("transformers.modeling_utils")
    if library is None:
        return
    capturing = sys.modules.get("transformers.utils.output_capturing")
    if capturing is not None:
        _trace_collectors(capturing.CompileableContextVar)
    for module in modules:
        if capturing is not None and isinstance(module, library.PreTrainedModel):
            _install_hooks(module, library.PreTrainedModel, capturing)
        if getattr(module, "_requires_grad", False) and type(module).__module__.startswith("transformers."):
            setattr(module, "_requires_grad", False)  # noqa: B010 - no tensor, as modules say of unknown attributes


def _install_hooks(model: torch.nn.Module, model_class: type, capturing: Any) -> None:
    """Installs the hooks of a model and of the models inside of it that have none yet: transformers would install those
    of the others twice."""
    inside = [x for x in model.modules() if x is not model and isinstance(x, model_class)]
    ready = [x for x in inside if getattr(x, "_output_capturing_hooks_installed", False)]
    known = {module: set(module._forward_hooks) for each in ready for module in each.modules()}
    capturing.maybe_install_capturing_hooks(model)
    for module, hooks in known.items():
        for added in set(module._forward_hooks) - hooks:
            del module._forward_hooks[added]


def _trace_collectors(variable: Any) -> None:
    """Lets Dynamo trace hooks wherever they are called, and in models inside of models: which collector is active is a
    `ContextVar`, for which transformers has a plain attribute while Dynamo traces, but only within a forward pass that
    collects, and the inner of two such passes would end the outer one's. What runs without Dynamo stays as it is."""
    if hasattr(variable, "_traced_by_joinsum"):
        return
    get, set_, reset = variable.get, variable.set, variable.reset

    def traced_get(self: Any) -> Any:
        return self.global_var if self.compiling or torch.compiler.is_dynamo_compiling() else get(self)

    def traced_set(self: Any, value: Any) -> Any:
        if not torch.compiler.is_dynamo_compiling():
            return set_(self, value)
        before = (self.compiling, self.global_var)
        self.compiling, self.global_var = True, value
        return before

    def traced_reset(self: Any, token: Any) -> None:
        if isinstance(token, tuple):  # also after a graph break
            self.compiling, self.global_var = token
        else:
            reset(self, token)

    variable.get, variable.set, variable.reset = traced_get, traced_set, traced_reset
    variable._traced_by_joinsum = True


def _trace_whole_weights() -> None:
    library = sys.modules.get("peft.utils.integrations")
    original: Any = getattr(library, "dequantize_module_weight", None)
    if original is None or hasattr(original, "_traced_by_joinsum"):
        return

    def dequantize_module_weight(module: torch.nn.Module) -> Any:
        traced = torch.compiler.is_dynamo_compiling() and not hasattr(module, "W_q")
        return module.weight if traced and type(module.weight) is torch.nn.Parameter else original(module)

    dequantize_module_weight._traced_by_joinsum = True  # type: ignore[attr-defined]
    for name, other in list(sys.modules.items()):
        if name.startswith("peft.") and getattr(other, "dequantize_module_weight", None) is original:
            setattr(other, "dequantize_module_weight", dequantize_module_weight)  # noqa: B010 - of a module
