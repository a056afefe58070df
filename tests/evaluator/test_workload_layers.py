"""Layers that a library answers as a whole: one operation each, with the work of all of it."""

from __future__ import annotations

import pytest

from egg.core.facts import Family
from egg.evaluator.task.meta import Meter
from tests.evaluator.workloads import FLOAT, only, uncounted_attention, work_of


def test_a_recurrent_layer_is_kept_whole_at_any_length() -> None:
    work = work_of(
        "return self.rnn(x)[0]",
        "torch.rand(4, 50000, 64)",
        "self.rnn = nn.LSTM(64, 128, num_layers=2, batch_first=True)",
    )
    layer = only(work, but="aten.zeros")
    positions = 4 * 50000
    assert layer.family is Family.RECURRENCE
    assert layer.flops == 2 * positions * 4 * 128 * ((64 + 128) + (128 + 128))
    assert layer.launches == 2 * (1 + 2 * 50000)
    weights = 4 * 128 * (64 + 128 + 2 + 128 + 128 + 2)
    states = 2 * 2 * 2 * 4 * 128
    moved = positions * ((64 + 2 * 4 * 128 + 128) + (128 + 2 * 4 * 128 + 128))
    assert layer.bytes == FLOAT * (weights + states + moved)


@pytest.mark.parametrize(("layer", "gates"), [("nn.GRU", 3), ("nn.RNN", 1), ("nn.LSTM", 4)])
def test_recurrence_in_both_directions(layer: str, gates: int) -> None:
    init = f"self.rnn = {layer}(16, 32, num_layers=2, bidirectional=True)"
    work = work_of("return self.rnn(x)[0]", "torch.rand(10, 3, 16)", init)
    both = 2 * gates * 32 * ((16 + 32) + (64 + 32))
    assert work.flops == 2 * (10 * 3) * both
    assert work.outputs["output"].shape == (10, 3, 64)


def test_a_packed_sequence() -> None:
    forward = """
    packed = nn.utils.rnn.pack_padded_sequence(x, [5, 3, 2], batch_first=True)
    return self.rnn(packed)[0].data
    """
    init = "self.rnn = nn.LSTM(8, 16, batch_first=True)"
    work = work_of(forward, "torch.rand(3, 5, 8)", init)
    layer = next(op for op in work.operations if op.family is Family.RECURRENCE)
    assert layer.flops == 2 * (5 + 3 + 2) * 4 * 16 * (8 + 16)
    assert layer.launches == 1 + 2 * 5


def test_one_step_of_a_cell_is_not_a_layer() -> None:
    work = work_of(
        "return self.cell(x, (y, y))[0]",
        "torch.rand(3, 8), torch.rand(3, 16)",
        "self.cell = nn.LSTMCell(8, 16)",
        "x, y",
    )
    assert work.flops == 2 * 3 * 4 * 16 * (8 + 16)
    assert Family.RECURRENCE not in {op.family for op in work.operations}


HEADS = "torch.rand(2, 4, 10, 8), torch.rand(2, 4, 12, 8), torch.rand(2, 4, 12, 6)"


def test_attention_is_one_operation() -> None:
    work = work_of("return F.scaled_dot_product_attention(x, y, z)", HEADS, arguments="x, y, z")
    operation = only(work)
    assert operation.name == "aten.scaled_dot_product_attention"
    assert operation.flops == 2 * 4 * (2 * 10 * 8 * 12 + 2 * 10 * 12 * 6)
    elements = 2 * 4 * (10 * 8 + 12 * 8 + 12 * 6 + 10 * 6)
    assert (operation.bytes, operation.launches) == (FLOAT * elements, 1)


def test_causal_attention_leaves_out_what_is_masked() -> None:
    causal = "return F.scaled_dot_product_attention(x, y, z, is_causal=True)"
    pairs = sum(min(row + 1, 12) for row in range(10))
    assert work_of(causal, HEADS, arguments="x, y, z").flops == 2 * 4 * 2 * pairs * (8 + 6)
    wide = "torch.rand(1, 1, 9, 4), torch.rand(1, 1, 5, 4), torch.rand(1, 1, 5, 4)"
    assert work_of(causal, wide, arguments="x, y, z").flops == 2 * sum(min(r + 1, 5) for r in range(9)) * 8


def test_fused_attention_with_fewer_heads_of_keys_is_counted_whatever_pytorch_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attend = uncounted_attention(monkeypatch)
    with Meter(10.0) as meter:
        attend()
    assert meter.flops == 2 * (2 * 8 * 64 * 64 * 32) * 2


def test_attention_inside_of_a_library_module() -> None:
    init = "self.layer = nn.MultiheadAttention(16, 4, batch_first=True)"
    inside = work_of("return self.layer(x, x, x, need_weights=False)[0]", "torch.rand(2, 10, 16)", init)
    names = [op.name for op in inside.operations]
    assert names.count("aten.scaled_dot_product_attention") == 1
    assert not [n for n in names if "softmax" in n or "bmm" in n]
    taken_apart = work_of("return self.layer(x, x, x)[0]", "torch.rand(2, 10, 16)", init)
    assert "aten.scaled_dot_product_attention" not in [op.name for op in taken_apart.operations]
    assert inside.flops == taken_apart.flops == 2 * 20 * 16 * 64 + 2 * 4 * 2 * (2 * 10 * 10 * 4)


def test_dropout_is_one_kernel_that_keeps_its_mask() -> None:
    work = work_of("return F.dropout(x, 0.5)", "torch.rand(6, 7)")
    operation = only(work)
    assert (operation.name, operation.family) == ("aten.native_dropout", Family.RANDOM)
    assert operation.bytes == 42 * (FLOAT + FLOAT + 1)
    for idle in ("F.dropout(x, 0.5, training=False)", "F.dropout(x, 0.0)", "nn.Dropout().eval()(x)"):
        assert work_of(f"return {idle}", "torch.rand(6, 7)").operations == ()
    in_place = work_of("return F.dropout(x, 0.5, inplace=True)", "torch.rand(6, 7)")
    assert [op.name for op in in_place.operations] == ["aten.bernoulli_", "aten.div_", "aten.mul_"]


def test_rms_norm_is_one_kernel() -> None:
    work = work_of("return self.norm(x)", "torch.rand(6, 7)", "self.norm = nn.RMSNorm(7)")
    assert (only(work).family, only(work).flops) == (Family.NORMALIZATION, 8 * 42)
    assert only(work).bytes == FLOAT * (42 + 7 + 42)
