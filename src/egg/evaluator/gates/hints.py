"""What an author should look at when the process itself went wrong."""

from __future__ import annotations

HINTS = {
    "limits.timeout": "a loop that does not end, a deadlock between programs, or far too much work per call",
    "limits.memory": "allocate less: workspace beyond a few times the inputs is refused",
    "limits.output": "do not print",
    "limits.died": "the process ended: a crash, an exit, or an access far outside a tensor",
    "limits.protocol": "the candidate wrote to the judge's own channel",
    "limits.recursion": "unbounded recursion",
    "kernel.out_of_bounds": "mask loads and stores with the tensor's true extent",
    "kernel.race": "two programs, or two lanes of one, touch the same element: give each element one owner, "
    "use atomics, or put tl.debug_barrier() between the store and the load",
    "kernel.hint": "the compiler believes tl.multiple_of, tl.max_contiguous and tl.assume: state only what "
    "holds at every size",
    "kernel.undefined": "the language leaves this result open, and GPUs differ: clamp a float before it "
    "becomes an integer, keep divisors off zero, shifts below the width and indices of tl.gather inside the "
    "tile, and access memory by whole elements",
    "kernel.unsupported": "the interpreter cannot run this; see the evidence",
    "kernel.illegal_access": "an access outside a tensor: check offsets, masks and int32 overflow",
    "restricted.attribute": "write attribute names out, and use public ones",
    "restricted.builtin": "a kernel file needs no files, frames, namespaces or generated code",
    "restricted.cache": "memoise plain numbers only; keep what depends on weights on self",
    "restricted.class": "derive from torch.nn.Module (or torch.autograd.Function, Enum, a dataclass); a "
    "class that derives from another module of torch.nn and replaces its methods has a forward of its own",
    "restricted.import": "import torch, triton and the few standard modules that docs/evaluation.md names",
    "restricted.patch": "assign only to attributes of the file's own objects",
    "restricted.swallowed": "let exceptions reach the caller: what a special method raises is lost where "
    "Python or PyTorch calls it to try something",
    "build.compile": "the kernel does not compile for the target: see the compiler's message",
    "build.import": "the file must import and define ModelNew",
    "candidate.error": "the candidate raised; run it by itself on the task's inputs",
}


def hint_for(reason: str) -> str:
    return HINTS.get(reason, "see the evidence")
