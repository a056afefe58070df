"""May this dotted path be used? One answer for imports, attribute chains and ``getattr`` alike.

A path is walked segment by segment. Modules in the table say which of their names may be reached; the
first name that is not a module ends the walk (what lies behind a class or a function is judged by its
attribute name alone, in :mod:`.language`).
"""

from __future__ import annotations

from egg.evaluator.static.owned import HOMES, owns
from egg.evaluator.static.vocabulary import (
    CUDA,
    DATA_MOVEMENT,
    NN_DENIED,
    NN_FUNCTIONS,
    NUMPY,
    RANDOM,
    STANDARD,
    TENSOR_COMPUTE,
    TORCH_TYPES,
    TRITON,
    TYPE_NAMES,
    words,
)

Verdict = tuple[str, str] | None
"""``None`` when allowed, else the reason code and what is wrong."""

TORCH_MODULES = frozenset(["nn", "cuda", "autograd", "linalg", "fft", "special", "types"])
TORCH_ALLOWED = DATA_MOVEMENT | TENSOR_COMPUTE | RANDOM | TORCH_TYPES | TORCH_MODULES
FEW = {
    "library": frozenset(["custom_op"]),
    "amp": frozenset(["custom_fwd", "custom_bwd"]),
    "cuda.amp": frozenset(["custom_fwd", "custom_bwd"]),
    "autograd.forward_ad": frozenset(["unpack_dual"]),
}
"""Modules of which a file may use these names: decorators, and what asks whether a tensor has a tangent."""
TENSOR_NAMESPACES = frozenset(
    ["torch.nn.functional", "torch.nn.init", "torch.linalg", "torch.fft", "torch.special"]
)

TORCH_REASONS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        words("""
        set_float32_matmul_precision set_default_dtype set_default_device set_default_tensor_type
        use_deterministic_algorithms set_deterministic_debug_mode set_flush_denormal set_num_threads
        set_num_interop_threads manual_seed seed set_rng_state get_rng_state initial_seed Generator random
        backends autocast amp set_autocast_enabled set_autocast_dtype set_autocast_gpu_dtype inference_mode
        """),
        ("static.backend", "changes how PyTorch itself computes"),
    ),
    **dict.fromkeys(
        words("Stream Event futures Future fork wait accelerator xpu mps mtia cpu"),
        ("static.stream", "moves work off the current stream"),
    ),
    **dict.fromkeys(
        words(
            "ops classes library jit compile compiler fx export func vmap package overrides cond while_loop"
        ),
        ("static.dynamic", "reaches operators or generated code by another road"),
    ),
    **dict.fromkeys(
        words(
            "load save hub from_file serialization storage UntypedStorage Storage TypedStorage frombuffer os"
        ),
        ("static.io", "reads or writes outside the program"),
    ),
    **dict.fromkeys(
        words("multiprocessing distributed threading signal"),
        ("static.process", "starts or steers processes"),
    ),
}

CUDA_REASONS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        words("Stream Event stream current_stream default_stream set_stream ExternalStream streams"),
        ("static.stream", "makes or steers streams and events"),
    ),
    **dict.fromkeys(
        words("amp set_per_process_memory_fraction set_device manual_seed manual_seed_all cudart random"),
        ("static.backend", "changes the state of the device or the runtime"),
    ),
}

TRITON_REASONS: dict[str, tuple[str, str]] = {
    "knobs": ("static.backend", "changes the compiler's global settings"),
    "runtime": ("static.namespace", "reaches into the launcher and driver"),
    "compile": ("static.dynamic", "compiles by another road than @triton.jit"),
    "testing": ("static.stream", "times kernels inside the candidate"),
}


def judge(path: str) -> Verdict:
    """Is the dotted path allowed? Otherwise the reason code and a phrase that names the offending part."""
    parts = path.split(".")
    if parts[0] == "torch":
        return _torch(parts)
    if parts[0] == "triton":
        return _triton(parts)
    if parts[0] == "numpy":
        return _numpy(parts)
    return _standard(parts)


def is_module(path: str) -> bool:
    """Does an allowed path name a module (which must not be handed around as a value)?"""
    return path in MODULES


WEIGHT_NORMS = ("weight_norm", "spectral_norm")
"""Functions that make a layer's weight one that is computed."""
_LIBDEVICE = (".libdevice", ".cuda", ".cuda.libdevice", ".hip", ".hip.libdevice")

MODULES = (
    frozenset(STANDARD)
    | frozenset(["numpy"])
    | TENSOR_NAMESPACES
    | frozenset(f"torch.{name}" for name in TORCH_MODULES)
    | frozenset(["torch.library", "torch.amp", "torch.cuda.amp"])
    | frozenset(["torch", "torch.nn.utils", "torch.nn.utils.parametrizations", "torch.nn.utils.rnn"])
    | frozenset(["torch.nn.modules", "torch.nn.parameter"])
    | frozenset(["triton", "triton.language", "triton.tools", "triton.tools.tensor_descriptor"])
    | frozenset(f"triton.language.extra{part}" for part in ("", *_LIBDEVICE))
    | frozenset(
        ["triton.language.math", "triton.language.core", "triton.language.standard", "triton.language.random"]
    )
)


def judge_import(path: str) -> Verdict:
    """An import must name an allowed module, or an allowed thing in one."""
    verdict = judge(path)
    if verdict and verdict[0] in ("static.namespace", "static.import"):
        return "static.import", f"imports {path}"
    return verdict


def _torch(parts: list[str]) -> Verdict:
    if len(parts) == 1:
        return None
    name, rest = parts[1], parts[2:]
    if private := _private(parts):
        return private
    if f"{name}.{'.'.join(rest[:2])}".startswith(tuple(FEW)):
        return _few(parts)
    if name not in TORCH_ALLOWED:
        return _because(f"torch.{name}", TORCH_REASONS.get(name))
    if name == "nn":
        return _nn(rest)
    if name == "cuda" and rest and rest[0] not in CUDA:
        return _because(f"torch.cuda.{rest[0]}", CUDA_REASONS.get(rest[0]))
    if name == "autograd" and rest and rest[0] != "Function":
        return _because(f"torch.autograd.{rest[0]}")
    if name == "types" and rest and rest[0] not in TYPE_NAMES:
        return _because(f"torch.types.{rest[0]}")
    return _owned(parts)


def _few(parts: list[str]) -> Verdict:
    """Modules of which a file may use a name or two, and nothing else."""
    for module, names in FEW.items():
        depth = 1 + module.count(".") + 1
        if ".".join(parts[1:depth]) == module and parts[depth:]:
            found = parts[depth]
            return (
                None if found in names else _because(f"torch.{module}.{found}", TORCH_REASONS.get(parts[1]))
            )
    return None


def _nn(rest: list[str]) -> Verdict:
    if not rest:
        return None
    name = rest[0]
    if name in NN_DENIED or (not name[0].isupper() and name not in NN_FUNCTIONS):
        return _because(f"torch.nn.{name}")
    if name == "utils" and rest[1:] and rest[1] not in ("rnn", "parametrizations", *WEIGHT_NORMS):
        return _because(f"torch.nn.utils.{rest[1]}")
    if rest[:2] == ["utils", "parametrizations"] and rest[2:] and rest[2] != "weight_norm":
        return _because(f"torch.nn.utils.parametrizations.{rest[2]}")
    if name in ("modules", "parameter") and rest[1:] and not rest[1][0].isupper():
        return _because(f"torch.nn.{name}.{rest[1]}")
    return _owned(["torch", "nn", *rest])


def _owned(parts: list[str]) -> Verdict:
    """Of every open namespace on the way only what is its own, or a module that is listed."""
    for cut in range(2, len(parts)):
        space, name = ".".join(parts[:cut]), parts[cut]
        if space in HOMES and f"{space}.{name}" not in MODULES and not owns(space, name):
            return _because(f"{space}.{name}")
    return None


def _triton(parts: list[str]) -> Verdict:
    if len(parts) == 1:
        return None
    if private := _private(parts):
        return private
    name, rest = parts[1], parts[2:]
    if name not in TRITON:
        return _because(f"triton.{name}", TRITON_REASONS.get(name))
    if name == "tools" and rest and rest[0] != "tensor_descriptor":
        return _because(f"triton.tools.{rest[0]}")
    if name == "tools" and rest[1:] and rest[1] != "TensorDescriptor":
        return _because(f"triton.tools.tensor_descriptor.{rest[1]}")
    return _owned(parts)


def _numpy(parts: list[str]) -> Verdict:
    if len(parts) > 1 and parts[1] not in NUMPY:
        return _because(f"numpy.{parts[1]}")
    return None


def _standard(parts: list[str]) -> Verdict:
    for cut in (2, 1):
        module = ".".join(parts[:cut])
        if module in STANDARD and len(parts) >= cut:
            return _standard_name(module, parts[cut:])
    return "static.import", f"imports {parts[0]}"


def _standard_name(module: str, rest: list[str]) -> Verdict:
    allowed = STANDARD[module]
    if not rest:
        return None
    if rest[0].startswith("_") or (allowed is not None and rest[0] not in allowed):
        return "static.namespace", f"uses {module}.{rest[0]}"
    return None


def _private(parts: list[str]) -> Verdict:
    for i, part in enumerate(parts):
        if part.startswith("_") and part not in ("__version__", "__name__"):
            return "static.private", f"reaches {'.'.join(parts[: i + 1])}"
    return None


def _because(path: str, reason: tuple[str, str] | None = None) -> Verdict:
    if reason is None:
        return "static.namespace", f"uses {path}, which is not on the list"
    return reason[0], f"{path} {reason[1]}"
