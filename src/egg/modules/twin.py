"""One module under two names: what is done to one is done to the other."""

from __future__ import annotations

from typing import Any, Self

from torch import nn

_SHARED = (
    "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_state_dict_hooks",
    "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip


class Twin(nn.Module):
    """Has the original's parameters, buffers and submodules themselves, not copies."""

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        for name in _SHARED:
            self.__dict__[name] = original.__dict__[name]
        self.training = original.training
        self.__dict__["_original"] = original

    @property
    def original(self) -> nn.Module:
        return self.__dict__["_original"]

    def train(self, mode: bool = True) -> Self:
        self.original.train(mode)
        self.training = mode
        return self

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        self.original._apply(fn, recurse)
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.original.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.original.load_state_dict(*args, **kwargs)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self.original._load_from_state_dict(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "_original" not in self.__dict__:
                raise
        return getattr(self.original, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if "_original" not in self.__dict__ or name == "training":
            super().__setattr__(name, value)
        else:
            setattr(self.original, name, value)

    def __getitem__(self, key: Any) -> Any:
        return self.original[key]  # type: ignore[index]
