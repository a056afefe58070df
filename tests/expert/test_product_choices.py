"""Which operands a product computes on the way, and which products of few rows are a pass over a weight."""

from __future__ import annotations

from tests.expert import elsewhere


def kinds(forward: str, inputs: str, **sizes: int) -> str:
    """What the file's heading says of its kernels."""
    text = elsewhere.written(elsewhere.program(forward, inputs, "pass", **sizes))
    return text.split("Kernels:")[1].split('"""')[0]


def sines(count: int) -> str:
    added = " + ".join(f"torch.sin(x * {n}.5) * 0.{n}" for n in range(1, count + 1))
    return f"return ({added}) @ w"


def test_many_special_functions_are_a_pass_before_the_product() -> None:
    given = "x = torch.randn(M, 64); w = torch.randn(64, 64)"
    assert "in one kernel" not in kinds(sines(2), given, M=16384)
    assert "in one kernel" in kinds(sines(9), given, M=16384)


def test_few_rows_of_a_weight_that_lies_across_the_sum_use_tensor_cores() -> None:
    given = "x = torch.randn(M, K).half(); w = torch.randn(K, 4096).half()"
    assert "(vector)" not in kinds("return x @ w", given, M=8, K=4096)
    assert "(vector)" in kinds("return x @ w", given, M=2, K=4096)
    along = given.replace("torch.randn(K, 4096)", "torch.randn(4096, K)")
    assert "(vector)" in kinds("return x @ w.T", along, M=8, K=4096)
