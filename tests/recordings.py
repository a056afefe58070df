"""A recording of torch.compile: what Inductor (torch 2.11, H200) generated for ``quant_int8_linear_relu``."""

from __future__ import annotations

from pathlib import Path

from egg.core.compiled import CompiledGraph, LaunchChoice
from egg.core.recording import LaunchTime, Recording
from egg.evaluator.timing.recorded import slim

TEXT = (Path(__file__).parent / "data" / "inductor" / "quant_int8_linear_relu.txt").read_text()
CAST, PRODUCT, EPILOGUE = (
    "triton_poi_fused__to_copy_0",
    "extern_kernels.mm",
    "triton_poi_fused_add_mul_relu_1",
)
GRAPH = CompiledGraph(
    arguments=(
        "L['self']._buffers['weight']",
        "L['x']",
        "L['self']._buffers['scale']",
        "L['self']._parameters['bias']",
    ),
    text=slim(TEXT),
    launches={CAST: LaunchChoice({"XBLOCK": 1024}, 4, 1), EPILOGUE: LaunchChoice({"XBLOCK": 512}, 8, 1)},
    returns={"output": 0},
)
RECORDING = Recording(
    GRAPH,
    timeline=(LaunchTime(CAST, 0.08), LaunchTime(PRODUCT, 0.05), LaunchTime(EPILOGUE, 0.002)),
    gpu="NVIDIA H200",
    seconds=2.0,
)
NOTHING = Recording(None, "torch.compile splits the program into 2 graphs", gpu="NVIDIA H200")
