"""Optimizer steps that are written with operators over lists of tensors."""

from __future__ import annotations

from tests.expert.elsewhere import check, normal, program

GIVEN = (
    "p = torch.randn(6, n); q = torch.randn(n); g = torch.randn(6, n); h = torch.randn(n); "
    "m = torch.randn(7, n)"
)
STEP = program(
    """
params, grads = [p, q], [g, h]
moments = [m[:6], m[6]]
norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads, 2.0)))
grads = torch._foreach_mul(grads, torch.clamp(self.most / (norm + 1e-6), max=1.0))
grads = torch._foreach_add(grads, params, alpha=0.01)
moments = torch._foreach_mul(moments, [0.9, 0.8])
torch._foreach_add_(moments, grads)
second = torch._foreach_mul(grads, grads)
torch._foreach_sqrt_(second)
torch._foreach_add_(second, 1e-3)
torch._foreach_maximum_(second, 0.1)
params = torch._foreach_addcdiv(params, moments, second, -0.1)
params = torch._foreach_addcmul(params, moments, grads, [0.5, 0.25])
kept = torch._foreach_lerp(params, grads, 0.3)
return (*params, *moments, *kept, norm)
""",
    GIVEN, "self.most = 0.5", "", n=300,
)  # fmt: skip
IN_PLACE = program(
    """
parts = [x[:2], x[2:]]
torch._foreach_mul_(parts, 0.5)
torch._foreach_add_(parts, [y, z], alpha=2.0)
return x + 1
""",
    "x = torch.randn(5, n); y = torch.randn(2, n); z = torch.randn(3, n)", "self.none = 0", "", n=300,
)  # fmt: skip


def test_a_step_is_what_it_does_to_each_tensor():
    check(STEP, [], [normal(6, 37), normal(37), normal(6, 37) + 1, normal(37) - 1, normal(7, 37)])


def test_writes_into_parts_of_a_tensor_are_seen_by_all_of_it():
    check(IN_PLACE, [], [normal(5, 37), normal(2, 37), normal(3, 37)])
