"""Requests about the process, its memory and the candidate's instance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from egg.evaluator.transport.protocol.base import Done, Json, Request, Target
from egg.evaluator.transport.slots import Slot
from egg.evaluator.transport.strict import AnyNumber, Sizes


@dataclass(frozen=True)
class Warm(Request[Done], command="warm"):
    """Touch the device and watch launches, before there is a candidate."""

    device: str
    watch: bool
    memory_fraction: float | None = None
    fence: bool = False


@dataclass(frozen=True)
class Health:
    healthy: bool


@dataclass(frozen=True)
class Canary(Request[Health], command="canary"):
    """Prove that this machine still runs a kernel and gets it right."""


@dataclass(frozen=True)
class FenceReport:
    unavailable: str
    """Why there is no fence, where there is none."""
    failed: str
    damaged: tuple[str, ...]


@dataclass(frozen=True)
class Fence(Request[FenceReport], command="fence"):
    """Lay everything that follows out in another way, and report what was noticed."""

    arrangement: str


@dataclass(frozen=True)
class Attach(Request[Done], command="attach"):
    """Open the judge's memory; a ``second`` one beside the first."""

    handle: Json
    second: bool = False


@dataclass(frozen=True)
class Detach(Request[Done], command="detach"):
    """Leave the second memory."""


@dataclass(frozen=True)
class Patched:
    changed: tuple[str, ...]


@dataclass(frozen=True)
class Integrity(Request[Patched], command="integrity"):
    """Name what the candidate patched in its process."""

    keep_cache: bool = True


@dataclass(frozen=True)
class TensorForm:
    shape: Sizes
    dtype: str


@dataclass(frozen=True)
class Built:
    """What an instance holds."""

    state: Mapping[str, TensorForm]
    parameters: tuple[str, ...]
    forward: tuple[tuple[str, str], ...] = ()
    """Names and defaults of ``forward``'s arguments."""


@dataclass(frozen=True)
class Load(Request[Built], command="load"):
    """Import the candidate and build ``ModelNew``.

    Without ``build`` both are left to the capture: a file may ask for the GPU when it is imported.
    """

    source: str
    init: str
    seed: int
    precision: str
    target: Target | None = None
    restricted: bool = False
    build: bool = True
    writes: tuple[int, ...] = ()
    """Inputs that forward writes to, by number."""


@dataclass(frozen=True)
class Fresh(Request[Built], command="fresh"):
    """A new instance with the weights last loaded; or with other arguments or dtype, and its own weights."""

    init: str | None = None
    precision: str | None = None
    wide: bool = False
    """In float64."""
    as_built: bool = False
    """With the weights that the constructor gives it, which nothing loads or changes."""


class Written(StrEnum):
    """How weights get into the module."""

    LOADED = "loaded"
    IN_PLACE = "changed in place, as an optimizer's step changes them"
    """Versions show it, and no address does."""
    DATA = "given other memory (`p.data = ...`)"
    """The address shows it, and no version does."""
    REPLACED = "replaced by other parameters, as load_state_dict(assign=True) replaces them"
    CHANNELS_LAST = "laid out anew by module.to(memory_format=torch.channels_last)"


@dataclass(frozen=True)
class Weights(Request[Done], command="weights"):
    """Load weights: by the candidate's name, the reference's name; by the reference's name, the slot."""

    names: Mapping[str, str]
    slots: Mapping[str, Slot]
    how: Written = Written.LOADED
    only: str = ""
    """The reference's name of the one that changes, where the others stay."""


@dataclass(frozen=True)
class Unsaved(Request[Done], command="unsaved"):
    """Give buffers that no ``state_dict`` holds other values, by name, as code outside of a module does."""

    slots: Mapping[str, Slot]


@dataclass(frozen=True)
class Switched:
    found: bool
    """Whether the module has such a part."""


@dataclass(frozen=True)
class Switch(Request[Switched], command="switch"):
    """Put one part of the module into the other mode, as ``module.part.eval()`` does."""

    part: str


@dataclass(frozen=True)
class State(Request[Done], command="state"):
    """Copy parameters and buffers out."""

    names: Mapping[str, str]
    slots: Mapping[str, Slot]


@dataclass(frozen=True)
class Attribute:
    """A plain attribute of a module: a number, or elements of a tensor."""

    name: str
    shape: Sizes | None
    values: tuple[AnyNumber, ...]


@dataclass(frozen=True)
class Attributes:
    found: tuple[Attribute, ...]


@dataclass(frozen=True)
class Show(Request[Attributes], command="show"):
    """Plain attributes of the module, as the last call left them; what is none is left out."""

    names: tuple[str, ...]
    seed: int = 0
    """Of the places at which large tensors are looked at."""


@dataclass(frozen=True)
class Ranked:
    unfit: tuple[str, ...]
    """For each file why it does not run, empty where it does."""


@dataclass(frozen=True)
class Contenders(Request[Ranked], command="contenders"):
    """Load other files beside the candidate, with its weights, and let each run once."""

    sources: tuple[str | None, ...]
    inputs: str
    slots: tuple[Slot, ...]
    seed: int
    threads: int
