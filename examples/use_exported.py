"""A kernel used without EGG: export it, then run this with torch and triton alone.

    egg export examples/rms_norm/fused.py rms-norm-op --task examples/rms_norm/rms_norm.py
    python examples/use_exported.py rms-norm-op

Without a GPU the operator runs the original program, or Triton's interpreter where TRITON_INTERPRET=1.
"""

import sys

import torch

sys.path.insert(0, sys.argv[1])  # in place of: pip install rms-norm-op

import rms_norm

device = "cuda" if torch.cuda.is_available() else "cpu"
module = rms_norm.ModelNew(64).to(device)
x = torch.randn(8, 64, device=device)

wanted = torch.nn.functional.rms_norm(x, (64,), module.weight, eps=1e-6)
torch.testing.assert_close(module(x), wanted, rtol=1e-4, atol=1e-5)

compiled = torch.compile(module, fullgraph=True, backend="inductor" if device == "cuda" else "aot_eager")
torch.testing.assert_close(compiled(x), wanted, rtol=1e-4, atol=1e-5)

program = torch.export.export(module.eval(), (x,))
assert "rms_norm" in str(program.graph)

module(x).sum().backward()  # by the original program
assert module.weight.grad is not None

assert not any(name.split(".")[0] == "egg" for name in sys.modules), "the package needs torch and triton only"
print("same answers, compiled and exported, without egg")
