"""What a candidate's process holds: memory, the candidate's instance, and how both are used."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from egg.evaluator.operators.contributed import Draw
from egg.evaluator.operators.copied import Written
from egg.evaluator.restrict.integrity import Snapshot
from egg.evaluator.task.written_inputs import answered
from egg.evaluator.transport import exchange, protocol
from egg.evaluator.transport.arena import Arena
from egg.evaluator.transport.protocol import GradMode
from egg.evaluator.transport.slots import Slot
from egg.evaluator.worker.device_turn import Announce, DeviceTurn
from egg.evaluator.worker.fence import Fence
from egg.evaluator.worker.inputs import Inputs
from egg.evaluator.worker.kept import Kept
from egg.evaluator.worker.launches import Launches
from egg.evaluator.worker.outputs import describe, lay
from egg.evaluator.worker.pretend import ClaimCuda, settle
from egg.evaluator.worker.settings import checked
from egg.evaluator.worker.threads import ThreadWatch

if TYPE_CHECKING:
    from egg.evaluator.offline.describe import Launched


class Instance:
    """The state of one candidate process."""

    def __init__(self, announce: Announce = lambda idle: None) -> None:
        self._announce = announce
        self._turn: DeviceTurn | None = None
        """On a GPU: when this process uses it."""
        self._device = torch.device("cpu")
        self._launches: Launches | None = None
        self._threads: ThreadWatch | None = None
        self._arena: Arena | None = None
        self._inputs: Inputs | None = None
        self._main: tuple[Arena, Inputs] | None = None
        """What to return to from a second memory."""
        self._init: tuple[list[Any], dict[str, Any]] = ([], {})
        self._make: Callable[[], nn.Module] | None = None
        self._construct: Callable[[Any], nn.Module] | None = None
        self._module: nn.Module | None = None
        self._contenders: list[nn.Module | None] = []
        self._kept: list[tuple[str, Any]] = []
        self._held: list[list[tuple[str, Any]]] = []
        """Outputs of many calls."""
        self._noted = Kept()
        self._leaves: tuple[str, ...] = ()
        """Attributes that forward is to leave for its callers, which the judge compares."""
        self._writes: tuple[int, ...] = ()
        """Inputs that forward writes to, by number."""
        self._drawn: list[tuple[Slot, torch.Tensor]] = []
        """Those that were handed over, with the values that they have again behind the request."""
        self._draws: list[Draw] = []
        """Calls that were followed."""
        self._written = Written()
        """What their kernels wrote to."""
        self._pretence: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        self._loaded: protocol.Weights | None = None
        self._watched: Sequence[Launched] = []
        self._dtype: torch.dtype | None = None
        self._restricted = False
        self._before_import: Snapshot | None = None
        self._fence: Fence | None = None
        self._unfenced = "no fence was asked for"

    def _call(
        self, arguments: list[Any], module: nn.Module | None = None, grad: GradMode = GradMode.OFF
    ) -> Any:
        return answered(self._returned(arguments, module, grad), arguments, self._writes)

    def _returned(
        self, arguments: list[Any], module: nn.Module | None = None, grad: GradMode = GradMode.OFF
    ) -> Any:
        chosen = self._module if module is None else module
        assert chosen is not None
        with _mode(grad), self._pretence:
            return chosen(*arguments)

    def _call_checked(self, arguments: list[Any], grad: GradMode = GradMode.OFF) -> Any:
        """A call that is not timed: what it leaves changed in the process is an error."""
        assert self._module is not None
        with _mode(grad), self._pretence:
            returned = checked(self._module)(*arguments)
        return answered(returned, arguments, self._writes)

    def _call_here(self, arguments: list[Any], module: nn.Module) -> Any:
        """From any thread: each has a current device of its own."""
        if self._turn is None:
            return self._call(arguments, module)
        with self._turn.had(), torch.cuda.device(self._device):
            return self._call(arguments, module)

    def _settled(self, module: nn.Module) -> nn.Module:
        """On the device; what is neither a parameter nor a buffer stays where the constructor made it."""
        if not isinstance(self._pretence, ClaimCuda):
            return module.to(device=self._device, dtype=self._dtype)
        with self._pretence:
            moved = module.to(device="cuda", dtype=self._dtype)
        settle(moved)
        return moved

    def _arguments(self, structure: str, slots: Sequence[Slot], *, moved: bool = False) -> list[Any]:
        """The inputs that lie there. What forward writes to is put back later, unless all are ``moved``:
        replaced by others before each call."""
        assert self._inputs is not None
        given = exchange.unpack(structure, [self._inputs.fetch(slot) for slot in slots])
        if not moved:
            written = [slots[number] for number in self._writes]
            self._drawn = [(slot, self._inputs.alias(slot).clone()) for slot in written]
        return given

    def _put_back(self) -> None:
        """Give the inputs that forward wrote to the values they were drawn with: elements, no gaps."""
        assert self._inputs is not None
        for slot, values in self._drawn:
            self._inputs.alias(slot).copy_(values)
        if self._drawn:
            self._give_back([slot for slot, _ in self._drawn])

    def _give_back(self, slots: Sequence[Slot]) -> None:
        assert self._inputs is not None
        self._inputs.give_back(slots)
        self._synchronize()

    def _view(self, slot: Slot) -> torch.Tensor:
        """The oracle's memory at ``slot``."""
        assert self._arena is not None
        return self._arena.view(slot)

    def _deliver(
        self, leaves: list[tuple[str, Any]], outputs: Sequence[Slot | None]
    ) -> tuple[protocol.OutputForm, ...]:
        self._lay(leaves, outputs)
        self._synchronize()
        return tuple(describe(path, leaf) for path, leaf in leaves)

    def _lay(self, leaves: list[tuple[str, Any]], outputs: Sequence[Slot | None]) -> None:
        """Copy outputs where the oracle wants them, if they are of the form it expects."""
        for (_, leaf), slot in zip(leaves, outputs, strict=False):
            if slot is None or not isinstance(leaf, torch.Tensor):
                continue
            destination = self._view(slot)
            if leaf.shape == destination.shape and leaf.dtype == destination.dtype and not leaf.is_sparse:
                lay(destination, leaf)

    def _off_device(self) -> contextlib.AbstractContextManager[None]:
        """For what leaves the GPU alone."""
        return self._turn.given_away() if self._turn is not None else contextlib.nullcontext()

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _mode(grad: GradMode) -> contextlib.AbstractContextManager[Any]:
    if grad is GradMode.INFERENCE:
        return torch.inference_mode()
    return torch.set_grad_enabled(grad is not GradMode.OFF)
