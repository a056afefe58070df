"""Convolutions written as kernels: right in the interpreter, and fit for the GPU they are compiled for."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from egg.analysis.predict import predict
from egg.evaluator.offline import capture, compile_all
from egg.expert.assemble import graph_of, kernel_file
from egg.expert.moves import Recipe
from egg.expert.parts import Unfit
from egg.expert.patterns.convolution.write import write
from egg.expert.sizes import named as named_size
from egg.hardware.gpus import resolve
from tests import ledgers
from tests.expert import elsewhere
from tests.expert.captured import program
from tests.expert.convolutions import Case, error, tf32_error, within

SMALL = {"BLOCK_P": 32, "BLOCK_O": 16, "BLOCK_K": 16}
"""Tiles so small that even little problems have several of them."""
EXACT = 3e-7
"""Root mean square error that fp32's own accuracy allows."""
SCALED = 5e-4
SLACK = 1.05
"""Of TF32's own error: nothing but the rounding of the operands may show."""
STRIP = {"ROWS": 4, "BLOCK_W": 16, "BLOCK": 64}
FORMS = (
    Case("plain", 2, 5, 7, (9, 11), (3, 3)),
    Case("padded_tail", 2, 5, 7, (9, 11), (3, 3), padding=1, tail=("relu", "scale")),
    Case("residual", 2, 5, 7, (6, 5), (3, 3), padding=1, tail=("residual", "relu")),
    Case("line", 2, 5, 7, (19,), (3,), 2, 1, 2),
    Case("space", 1, 3, 5, (5, 6, 7), (3, 2, 3), 1, 1, tail=("residual",)),
    Case("strided", 2, 20, 17, (9, 8), (3, 3), 2, 1),
    Case("one_tap", 2, 19, 17, (5, 7), (1, 1), bias=False),
    Case("one_tap_strided", 2, 20, 5, (9, 8), (1, 1), 2),
    Case("one_tap_padded", 2, 3, 5, (4, 4), (1, 1), 1, 1),
    Case("grouped", 2, 8, 12, (7, 9), (3, 3), 1, 1, 1, 4),
    Case("wide_kernel", 2, 1, 5, (9, 8), (5, 5), 2, 2),
    Case("dilated", 2, 3, 20, (11, 12), (3, 2), 1, 2, 3),
    Case("single_output", 2, 4, 1, (6, 5), (3, 3)),
    Case("one_of_all", 1, 1, 1, (3,), (3,)),
    Case("turned_line", 2, 5, 7, (13,), (3,), 1, 1, transposed=True),
    Case("turned_dilated", 2, 5, 7, (9,), (5,), 3, 2, 2, transposed=True, output_padding=1),
    Case("turned_plane", 2, 6, 7, (5, 6), (3, 3), 2, 1, transposed=True, output_padding=1, tail=("relu",)),
    Case("turned_even", 2, 6, 7, (5, 6), (4, 4), 2, 1, transposed=True),
    Case("turned_shared", 2, 6, 8, (5, 6), (3, 2), 2, 0, 2, 2, transposed=True),
    Case("turned_sparse", 2, 3, 5, (5, 4), (2, 2), 3, 0, transposed=True),
    Case("turned_space", 1, 4, 5, (3, 4, 5), (3, 3, 3), 2, 1, transposed=True, output_padding=1),
    Case("prologue", 2, 5, 7, (9, 11), (3, 3), padding=1, prologue=True),
)
STENCILS = (
    Case("stencil", 2, 5, 5, (9, 8), (3, 3), 1, 1, groups=5, tail=("relu",)),
    Case("stencil_wide", 1, 2, 2, (7, 19), (5, 7), 1, 2, groups=2),
    Case("stencil_strided", 2, 3, 3, (12, 19), (3, 3), 2, 1, groups=3),
    Case("stencil_strided_wide", 2, 3, 3, (13, 18), (5, 5), 2, 2, groups=3, prologue=True, tail=("relu",)),
    Case("stencil_strided_far", 1, 2, 2, (17, 16), (4, 3), 3, 1, groups=2),
    Case("stencil_dilated", 1, 4, 4, (12, 13), (3, 3), 1, 2, 2, groups=4),
    Case("stencil_line", 2, 4, 4, (29,), (3,), 1, 1, groups=4, bias=False),
    Case("stencil_space", 1, 2, 2, (4, 5, 6), (3, 3, 3), 1, 1, groups=2),
    Case("stencil_multiplied", 2, 3, 6, (7, 9), (3, 3), 1, 1, groups=3),
    Case("stencil_turned", 2, 4, 4, (7, 9), (3, 3), 1, 1, groups=4, transposed=True),
    Case("stencil_prologue", 2, 3, 3, (7, 9), (3, 3), 1, 1, groups=3, prologue=True),
    Case("stencil_single", 2, 1, 1, (9, 8), (3, 3), 1, 1, tail=("relu",)),
    Case("stencil_single_wide", 1, 1, 1, (12, 19), (5, 7), 2, 2, bias=False),
)


def named(cases: tuple[Case, ...]) -> Any:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


@named(FORMS)
def test_every_form_is_right_over_packed_operands(case: Case) -> None:
    within(SLACK * tf32_error(case), replace(case, settings={**SMALL, "mode": "packed"}))


@named(FORMS[1:2] + FORMS[4:5] + FORMS[6:7] + FORMS[9:10] + FORMS[13:14] + FORMS[18:19] + FORMS[21:22])
def test_forms_are_right_straight_from_memory(case: Case) -> None:
    within(SLACK * tf32_error(case), replace(case, settings={**SMALL, "mode": "direct"}))


OVER_CHANNELS = (
    Case("shares", 2, 5, 7, (9, 11), (3, 3), padding=1, tail=("relu", "softmax")),
    Case("least_kept", 2, 5, 21, (5, 6), (3, 3), padding=1, tail=("scale", "min_kept")),
    Case("least", 1, 3, 5, (3, 4, 5), (3, 2, 3), 1, 1, tail=("min",)),
    Case("turned_exponents", 2, 6, 7, (5, 6), (3, 3), 2, 1, transposed=True, tail=("logsumexp",)),
    Case("average", 2, 5, 7, (19,), (3,), 2, 1, tail=("mean", "relu")),
)


@named(OVER_CHANNELS)
def test_what_follows_over_channels(case: Case) -> None:
    """Also with more channels than when the file was written, as far as it has a tile for them."""
    case = replace(case, settings={**SMALL, "mode": "direct" if case.rank == 1 else "packed"})
    within(SLACK * tf32_error(case.larger()), case, case.larger())


def test_too_many_channels_for_one_tile_are_refused() -> None:
    with pytest.raises(Unfit, match="300 output channels"):
        replace(OVER_CHANNELS[0], outputs=300).part()


def test_a_step_with_several_results_is_refused() -> None:
    """As a batch norm in training has them."""
    graph, group = FORMS[1].graph()
    *first, last = group.nodes
    twice = replace(last, outputs=(last.output, "second"))
    values = {**graph.values, "second": replace(graph.value(last.output), name="second")}
    changed = replace(graph, nodes=(*first, twice), values=values)
    with pytest.raises(Unfit, match="2 results"):
        write(changed, replace(group, nodes=(*first, twice)), FORMS[1].target())


@pytest.mark.parametrize(
    ("case", "mode"),
    [(FORMS[at], "packed") for at in (4, 9, 18)] + [(FORMS[16], "direct")],
    ids=str,
)
def test_the_file_is_right_at_other_sizes(case: Case, mode: str) -> None:
    case = replace(case, settings={**SMALL, "mode": mode})
    within(SLACK * tf32_error(case.larger()), case, case.larger())


@pytest.mark.parametrize(
    ("case", "mode"), [(FORMS[at], "packed") for at in (9, 16, 17)] + [(FORMS[1], "direct")], ids=str
)
def test_fp32_grade(case: Case, mode: str) -> None:
    settings = {**SMALL, "mode": mode, "grade": "fp32"}
    within(EXACT, replace(case, settings=settings))


@named(FORMS[1:2] + FORMS[16:17])
def test_ieee_grade(case: Case) -> None:
    within(EXACT, replace(case, settings={**SMALL, "grade": "ieee"}))


@pytest.mark.parametrize(
    ("case", "dtype", "mode"),
    [
        (FORMS[1], "float16", "direct"),
        (FORMS[1], "bfloat16", "packed"),
        (FORMS[16], "float16", "packed"),
        (STENCILS[0], "bfloat16", "depthwise"),
    ],
    ids=str,
)
def test_half_types(case: Case, dtype: str, mode: str) -> None:
    settings = {**(STRIP if mode == "depthwise" else SMALL), "mode": mode}
    bound = {"float16": 1e-3, "bfloat16": 6e-3}[dtype]
    within(bound, replace(case, dtype=dtype, settings=settings))


@named(STENCILS)
def test_one_channel_each(case: Case) -> None:
    within(EXACT, replace(case, settings=STRIP))


@named(STENCILS[2:3] + STENCILS[6:7])
def test_one_channel_each_at_other_sizes(case: Case) -> None:
    case = replace(case, settings=STRIP)
    within(EXACT, case, case.larger())


@pytest.mark.parametrize("mode", ["direct", "packed"])
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_scaling_covers_the_range_of_fp32(mode: str, scale: float) -> None:
    """Far beyond fp16's range, image by image: the powers of two make up for it."""
    case = replace(FORMS[0], settings={**SMALL, "mode": mode}, bias=False, factors=(1.0, scale))
    found, right = case.run()
    for at in range(2):
        assert error(found[at], right[at]) < SCALED


@pytest.mark.parametrize("spike", [100.0, 1e6, 1e30])
def test_a_number_far_beyond_the_sample(spike: float) -> None:
    """The guessed scale leaves no room for it: the image is packed again, the other one is not."""
    case = replace(FORMS[0], settings={**SMALL, "mode": "packed", "SAMPLE": 16}, bias=False, spike=spike)
    found, right = case.run()
    assert error(found[0], right[0]) < SCALED
    assert error(found[1], right[1]) < SCALED


@pytest.mark.parametrize("mode", ["direct", "packed"])
def test_infinities_stay_where_they_are(mode: str) -> None:
    case = replace(FORMS[0], settings={**SMALL, "mode": mode}, infinite=True)
    found, right = case.run()
    touched = ~torch.isfinite(right)
    assert bool(touched.any())
    assert not bool(torch.isfinite(found[touched]).any())
    assert bool(torch.isfinite(found[~touched]).all())
    assert float((found[~touched].double() - right[~touched]).norm() / right[~touched].norm()) < SCALED


# -- for the GPU -------------------------------------------------------------------------------------------

COMPILED = (
    Case("turned_space_2", 128, 32, 64, (16, 16, 16), (3, 3, 3), 2, 1, transposed=True, output_padding=1),
    Case("one_tap_large", 16, 64, 128, (512, 512), (1, 1), bias=False),
    Case("exact", 128, 64, 128, (128, 128), (3, 3), tail=("relu", "scale"), settings={"grade": "fp32"}),
    Case("stencil_large", 16, 64, 64, (512, 512), (3, 3), groups=64, bias=False),
)


@named(COMPILED)
def test_compiled_for_hopper(case: Case, tmp_path: Path) -> None:
    ledgers.COMPILED.once(lambda: _compiles_near_its_roofline(case, tmp_path), case.source(), case)


def _compiles_near_its_roofline(case: Case, tmp_path: Path) -> None:
    rows = compile_all(capture(*_model(case, tmp_path), "sm_90", compile_timeout_s=60), "sm_90")
    assert all(row.spill_bytes == 0 for row in rows)
    product = rows[-1]
    assert bool(product.tensor_core_instructions) == (case.groups == 1)
    total = 0.0
    for row in rows:
        predicted = predict(row, resolve("h200"))
        assert predicted is not None
        total += predicted.milliseconds
    floor = _roofline(case)
    assert total < FAR * floor, f"{total:.3f} ms, where the roofline allows {floor:.3f} ms"


FAR = 2.5
"""Times the roofline that a predicted time may be: packing is two more passes over the input."""


def _roofline(case: Case) -> float:
    """Milliseconds: the input read, the result written, and the products on the tensor cores' fp16 units."""
    gpu, out = resolve("h200"), case.batch * case.outputs * torch.Size(case.out_space()).numel()
    moved = 4 * (out + case.batch * case.inputs * torch.Size(case.space).numel())
    taps = torch.Size(case.kernel).numel() / (case.stride**case.rank if case.transposed else 1)
    products = 3 if case.settings.get("grade") == "fp32" else 1
    flops = 2 * out * taps * case.inputs / case.groups * products
    return 1e3 * (moved / gpu.bandwidth + flops / gpu.tensor["fp16"])


def _model(case: Case, folder: Path) -> tuple[Any, Any]:
    path = folder / f"{case.name}.py"
    path.write_text(case.source())

    class Model(torch.nn.Module):
        def __init__(self, module: Any) -> None:
            super().__init__()
            self.module = module
            self.conv = torch.nn.Module()
            self.conv.weight = torch.nn.Parameter(torch.empty(case.weight_shape(), device="cuda"), False)
            self.conv.bias = torch.nn.Parameter(torch.empty(case.outputs, device="cuda"), False)
            self.scale = torch.nn.Parameter(
                torch.empty(case.outputs, *(1,) * case.rank, device="cuda"), False
            )

        def forward(self, x: torch.Tensor) -> Any:
            return self.module.forward(self, x)

    def build() -> torch.nn.Module:
        spec = importlib.util.spec_from_file_location(f"compiled_{case.name}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return Model(module)

    return build, lambda: [torch.empty(case.batch, case.inputs, *case.space, device="cuda")]


# -- one position ------------------------------------------------------------------------------------------

ONE_POSITION = {
    "gathered": ("nn.Conv1d(1, 3, 3, stride=2, padding=1)", (2, 1, 3), (0, 2)),
    "one channel": ("nn.Conv1d(1, 1, 3, padding=1)", (2, 1, 3), (0, 2)),
    "many channels": ("nn.Conv1d(64, 48, 3, padding=1)", (2, 64, 3), (0, 2)),
    "transposed": ("nn.ConvTranspose1d(8, 16, 3, padding=1)", (2, 8, 3), (0, 2)),
    "in groups": ("nn.Conv2d(8, 16, 3, padding=1, groups=2)", (2, 8, 3, 3), (0, 2, 3)),
    "one tap": ("nn.Conv2d(8, 16, 1)", (2, 8, 3, 3), (0, 2, 3)),
    "over channels": ("nn.Sequential(nn.Conv1d(4, 8, 3, padding=1), nn.Softmax(1))", (2, 4, 3), (0, 2)),
    "stencil of one column": ("nn.Conv2d(8, 8, 3, padding=1, groups=8)", (2, 8, 5, 3), (3,)),
}
"""Layers, inputs, and the dimensions of those that are one place when they come to the layer."""


def _one_position(name: str) -> str:
    layer, shape, dims = ONE_POSITION[name]
    forward = f"return self.conv(torch.sum(x, dim={dims}, keepdim=True))"
    return elsewhere.program(forward, f"x = torch.randn{shape}", f"self.conv = {layer}")


@pytest.mark.parametrize("name", ONE_POSITION)
def test_one_position_in_all(name: str) -> None:
    """The addresses of a result have the shape of its tile all the same."""
    elsewhere.check(_one_position(name), (), [elsewhere.normal(*ONE_POSITION[name][1])], 8e-3)


def test_one_position_compiles_for_hopper(tmp_path: Path) -> None:
    path = tmp_path / "written.py"
    path.write_text(elsewhere.written(_one_position("gathered")))
    spec = importlib.util.spec_from_file_location("one_position", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shape = ONE_POSITION["gathered"][1]
    captured = capture(lambda: module.ModelNew().to("cuda"), lambda: [torch.empty(shape).cuda()], "sm_90")
    assert "conv_kernel" in {row.name for row in compile_all(captured, "sm_90")}


# -- what it does not take -----------------------------------------------------------------------------------


def test_unknown_settings_are_refused() -> None:
    for settings in ({"mode": "winograd"}, {"grade": "fp8"}, {"mode": "packed", "grade": "ieee"}):
        with pytest.raises(Unfit):
            replace(FORMS[0], settings=settings).part()


def test_a_size_named_like_an_index_is_refused() -> None:
    graph, group = FORMS[0].graph()

    x = graph.value("x")
    odd = replace(x, shape=(*x.shape[:-1], named_size("qw", x.shape[-1].values)))
    changed = replace(graph, values={**graph.values, "x": odd})
    with pytest.raises(Unfit, match="qw"):
        write(changed, group, FORMS[0].target())


def test_a_plane_of_one_position_is_no_stencil() -> None:
    task = program(
        "self.conv(x).relu()",
        "torch.rand(B, C, 1, 1)",
        "self.conv = nn.Conv2d(C, C, 3, padding=1, groups=C)",
        "B, C = 8, 96",
    )
    text = kernel_file(task, graph_of(task), Recipe(), resolve("H200")).source
    assert "a stencil" not in text
