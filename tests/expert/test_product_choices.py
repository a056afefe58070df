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


def test_each_small_product_of_a_large_batch_is_one_tile() -> None:
    """As a pass over the larger operand its sums would end across lanes; packing is a pass more that no two
    programs share."""
    given = "x = torch.randn(N, R, K); w = torch.randn(N, K, C)"
    weighed = kinds("return x @ w", given, N=1200, R=42, K=42, C=8)
    assert "tf32x3 grade (direct)" in weighed
    assert "pack" not in weighed
    scores = kinds("return x @ w * 0.5", given, N=1200, R=42, K=8, C=40)
    assert "tf32x3 grade (direct)" in scores
    assert "pack" not in scores
    assert "(vector)" in kinds("return x @ w", given, N=100, R=42, K=42, C=8)
    assert "(vector)" in kinds("return x @ w", given, N=1200, R=200, K=42, C=8)


def test_the_tile_of_a_small_product_is_that_product() -> None:
    given = "x = torch.randn(N, R, K); w = torch.randn(N, K, C)"
    text = elsewhere.written(elsewhere.program("return x @ w", given, "pass", N=1200, R=42, K=42, C=3))
    constants = [line.split("  #")[0] for line in text.split("\n") if line.startswith("MATMUL_")]
    assert constants[:3] == ["MATMUL_BLOCK_M = 64", "MATMUL_BLOCK_N = 16", "MATMUL_BLOCK_K = 32"]
    assert "MATMUL_NUM_WARPS = 2" in constants
