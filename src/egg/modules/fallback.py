"""What answers a graph that has no kernel: Inductor as ``torch.compile`` calls it, or another backend.

Inductor is asked at once for a graph without a kernel, in Dynamo's own context. For one with a kernel it is
asked at the first call that needs it, so a program whose kernels are known does not wait for it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.fx._lazy_graph_module import _make_graph_module

from egg.core.errors import UsageError

INDUCTOR, EAGER, AOT_EAGER = "inductor", "eager", "aot_eager"
Inner = Callable[..., Any]
"""Compiles one graph of AOTAutograd, as ``torch._inductor.compile_fx.compile_fx_inner`` does."""


@dataclass(frozen=True)
class Eagerly:
    """A graph that Inductor failed to compile: it runs operator by operator."""

    forward: Callable[..., Any]
    reason: str
    lasting: bool
    """Whether it would fail in another process too: not for lack of a compiler on this machine."""

    def __call__(self, *args: Any) -> Any:
        return self.forward(*args)


@dataclass(frozen=True)
class Fallback:
    """Another backend, with what the caller of ``torch.compile`` gave for it."""

    name: str
    mode: str | None
    options: Mapping[str, Any]
    notice: Callable[[str], None]

    @property
    def has_parts(self) -> bool:
        """Whether forward and backward graphs can be compiled one by one."""
        return self.name in (INDUCTOR, EAGER, AOT_EAGER)

    def trained(self, graph: fx.GraphModule, inputs: Sequence[Any], inner: Inner) -> Callable[..., Any]:
        """A graph that trains, compiled as Inductor does it, with ``inner`` in the place of its own.

        The cache of AOTAutograd is off: what it keeps was compiled without ``inner``. That of Inductor is on.
        """
        from torch._functorch import config
        from torch._inductor.compile_fx import compile_fx

        self._check_options()
        options = self._inductor().config
        with config.patch(enable_autograd_cache=False, enable_remote_autograd_cache=False):
            made: Any = compile_fx(graph, list(inputs), inner_compile=inner, config_patches=options)
        return made

    def part(self, graph: fx.GraphModule, inputs: Sequence[Any], **how: Any) -> Callable[..., Any]:
        """One graph of AOTAutograd compiled; its arguments are given as a list, which the call empties."""
        if self.name != INDUCTOR:
            return boxed(graph.forward)
        from torch._inductor.compile_fx import compile_fx_inner

        nodes = copy.deepcopy(graph.graph)  # Inductor changes what it gets
        return self._able(
            lambda: compile_fx_inner(graph, inputs, **how),
            lambda *_: boxed(fx.GraphModule(graph, nodes).forward),
        )

    def now(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """The graph compiled; called by Dynamo within a backend. :class:`Eagerly` where Inductor fails."""
        self._check_options()
        if self.name == INDUCTOR:
            given = as_dynamos(graph, copy.deepcopy(graph.graph))  # Inductor changes what it gets
            inductor = self._inductor()
            return self._able(
                lambda: inductor(given, list(inputs)), lambda *why: Eagerly(running(graph), *why)
            )
        from torch._dynamo.backends.registry import lookup_backend

        return lookup_backend(self.name)(graph, list(inputs))

    @property
    def replays(self) -> bool:
        """Whether what Inductor compiles may be replayed as a CUDA graph: the caller left the mode to it."""
        return self.name == INDUCTOR and self.mode is None and not self.options

    def later(self, graph: fx.GraphModule) -> Callable[..., Any]:
        """The graph, compiled when it is first called."""
        if self.name == EAGER:
            return graph.forward
        return torch.compile(graph, backend=self.now)

    def _check_options(self) -> None:
        if self.name != INDUCTOR and (self.mode is not None or self.options):
            given = ", ".join([*(["mode"] if self.mode is not None else []), *self.options])
            raise UsageError(f"the fallback {self.name} takes no {given}", "leave it out")

    def _inductor(self) -> Any:
        """What ``torch.compile`` calls; its ``config`` has mode and options in Inductor's own words."""
        return torch._TorchCompileInductorWrapper(self.mode or "default", dict(self.options), None)

    def _able(
        self, compiling: Callable[[], Any], otherwise: Callable[[str, bool], Callable[..., Any]]
    ) -> Callable[..., Any]:
        """What Inductor makes. Where this machine has no compiler for it, or where it fails, what
        ``otherwise`` makes of the reason, and of whether it lasts: a program that runs without
        ``torch.compile`` runs with this backend."""
        from torch._inductor import exc

        names = ("InvalidCxxCompiler", "TritonMissing")
        missing = tuple(found for name in names if (found := getattr(exc, name, None)))
        failures = (*missing, *((exc.InductorError,) if hasattr(exc, "InductorError") else ()))
        try:
            return compiling()
        except Exception as error:
            cause = getattr(error, "inner_exception", error)
            if not isinstance(error, failures) and not isinstance(cause, failures):
                raise
            reason = f"{type(cause).__name__}: {cause}".splitlines()[0]
            self.notice(f"Inductor fails here ({reason}): the graph runs eagerly")
            return otherwise(reason, not isinstance(cause, missing) and not isinstance(error, missing))


def as_dynamos(graph: fx.GraphModule, nodes: fx.Graph) -> fx.GraphModule:
    """A module of other nodes with the same placeholders, known as Dynamo's as ``graph`` is.

    AOTAutograd asks the module where its inputs come from: which are the same tensor, and which are
    parameters that stay where they are, so that a CUDA graph reads them in place. Its cache goes by the
    attributes of the module in their order, so that a copy is found as what it is a copy of. As Dynamo's, the
    module has no code before something asks for it (:func:`running`).
    """
    made = _make_graph_module(graph, nodes)
    made.meta = dict(graph.meta)
    own = dict(made.__dict__)
    made.__dict__.clear()
    made.__dict__.update({**graph.__dict__, **own})
    inputs = (module.graph.find_nodes(op="placeholder") for module in (graph, made))
    for known, same in zip(*inputs, strict=True):
        if hasattr(known, "_dynamo_source"):
            same._dynamo_source = known._dynamo_source
    return made


def running(graph: fx.GraphModule) -> Callable[..., Any]:
    """The graph operator by operator. Its code is written now, and not asked for at every call."""
    _ = graph.code
    return graph.forward


def boxed(call: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose arguments are given as a list, as AOTAutograd calls what it compiled."""

    def run(args: list[Any]) -> Any:
        given = tuple(args)
        args.clear()
        return call(*given)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def unboxed(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: call(list(args))
