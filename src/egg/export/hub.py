"""A kernel file in the layout that Hugging Face's package ``kernels`` loads from a folder or from the Hub.

A repository holds ``build/VARIANT``; Triton kernels need one variant for all machines, ``torch-universal``.
The variant folder is the package itself, with ``metadata.json``; loaders of older versions look for a folder
of the package's name in it and find one that imports the outer. The loader gives the module a name of its
own, so imports inside are relative, and the operator's namespace holds the kernel's hash.
"""

from __future__ import annotations

import json
from pathlib import Path

from egg.evaluator.task.interface import Interface
from egg.export.package import Claim, judged_words, python_files, write_all

VARIANT = "torch-universal"
SHIM = '''"""For loaders that look for the package here: everything is one folder further out."""

import importlib.util
import sys
from pathlib import Path

_path = Path(__file__).parent.parent / "__init__.py"
_name = f"{__name__.replace('.', '_')}_outer"
_spec = importlib.util.spec_from_file_location(_name, _path, submodule_search_locations=[str(_path.parent)])
_outer = importlib.util.module_from_spec(_spec)
sys.modules[_name] = _outer
_spec.loader.exec_module(_outer)
globals().update({name: getattr(_outer, name) for name in _outer.__all__})
__all__ = _outer.__all__
'''


def write_repository(claim: Claim, seen: Interface, folder: Path) -> list[Path]:
    """The repository in ``folder``, which must be new or empty."""
    base = f"build/{VARIANT}"
    name = claim.package.replace("_", "-")
    metadata = {
        "name": name,
        "id": claim.namespace,
        "version": 1,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": "cuda"},
    }
    texts = {f"{base}/{file}": text for file, text in python_files(claim, seen, layers=True).items()}
    texts[f"{base}/metadata.json"] = json.dumps(metadata, indent=2) + "\n"
    texts[f"{base}/{claim.package}/__init__.py"] = SHIM
    texts["README.md"] = _card(claim, name)
    return write_all(folder, texts)


def _card(claim: Claim, name: str) -> str:
    return f"""---
library_name: kernels
tags: [kernels, triton]
---

# {name}

{claim.task.name} as Triton kernels: {judged_words(claim.evaluation)}.

```python
from pathlib import Path
from kernels import get_local_kernel

loaded = get_local_kernel(Path("."), "{claim.package}")
module = loaded.ModelNew(...)  # the constructor of the original module
```

`loaded.layers.{claim.class_name}` is a layer for `kernelize`.

Set the license of your program in `build/{VARIANT}/metadata.json` before you publish this folder.
"""
