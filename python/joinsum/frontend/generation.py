"""`generate`, as transformers has it, of models whose parameters are on the sites."""

from __future__ import annotations

from typing import Any

from joinsum.frontend.model_method import ModelMethod

__all__ = ["Generate"]

# Arguments that ask for a cache of another kind, or for a search that shortens it.
_WITH_OTHER_CACHES = (
    "past_key_values",
    "assistant_model",
    "is_assistant",
    "custom_generate",
    "prompt_lookup_num_tokens",
)


class Generate(ModelMethod):
    """A model's method `generate`, whose key-value cache has its full length from the beginning: each token is then
    written into it by the same plan. The caller may ask for another one, `cache_implementation="dynamic"`."""

    name = "generate"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the library's."""
        positional = next((x for x in args if hasattr(x, "cache_implementation")), None)
        config = kwargs.get("generation_config") or positional or self._model.generation_config
        asked = {name: getattr(config, name, None) for name in ("cache_implementation", "use_cache")}
        asked |= kwargs
        given: dict[str, Any] = {}
        if hasattr(config, "disable_compile"):
            given["disable_compile"] = True  # the forward pass is compiled already
        others = any(asked.get(name) or getattr(config, name, None) for name in _WITH_OTHER_CACHES)
        takes_static = getattr(self._model, "_can_compile_fullgraph", False)  # as transformers calls it
        if takes_static and asked["cache_implementation"] is None and asked["use_cache"] is not False and not others:
            given["cache_implementation"] = "static"
        return self._original(*args, **kwargs | given)
