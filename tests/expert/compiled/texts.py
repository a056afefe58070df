"""Modules in the form that Inductor generates, written by hand for small programs.

A text has what a generated one has: kernels as strings with the heuristic that names their grid, ``Runner``
with ``call``, and example arguments, which name dtypes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import dedent, indent
from typing import Any

from egg.core.compiled import CompiledGraph, FoldedConstant, LaunchChoice

HEAD = """\
import torch
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.select_algorithm import extern_kernels
aten = torch.ops.aten
assert_size_stride = torch._C._dynamo.guards.assert_size_stride
empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda
reinterpret_tensor = torch._C._dynamo.guards._reinterpret_tensor
async_compile = AsyncCompile()
"""
KERNEL = """\
# Topologically Sorted Source Nodes: [y], Original ATen: [{operators}]
{name} = async_compile.triton('{name}', '''
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
triton_helpers.set_driver_to_gpu()

@triton_heuristics.{heuristic}(
    size_hints={{'x': 64}},
    filename=__file__,
    triton_meta={{'signature': {{}}, 'device': DeviceProperties(type='cuda', index=0), 'constants': {{}}}},
    inductor_meta={{'grid_type': '{grid}', 'autotune_hints': set(), 'mutated_arg_names': {mutated}}},
)
@triton.jit
def {name}({parameters}):
{body}
''', device_str='cuda')
"""
RUNNER = """
async_compile.wait(globals())
del async_compile

class Runner:
    def __init__(self, partitions):
        self.partitions = partitions

    def call(self, args):
        {names} = args
        args.clear()
{checks}
        with torch.cuda._DeviceGuard(0):
            torch.cuda.set_device(0)
{body}

runner = Runner(partitions=[{partitions}])
call = runner.call

def get_args():
{examples}
"""
Form = tuple[tuple[int, ...], tuple[int, ...], str]


def kernel(
    name: str,
    parameters: str,
    body: str,
    *,
    heuristic: str = "pointwise",
    grid: str = "Grid1D",
    operators: str = "aten.mul",
    mutated: Sequence[str] = (),
) -> str:
    return KERNEL.format(
        name=name,
        parameters=parameters,
        body=indent(dedent(body).strip(), "    "),
        heuristic=heuristic,
        grid=grid,
        operators=operators,
        mutated=list(mutated),
    )


def compiled(
    arguments: Mapping[str, Form],
    kernels: Sequence[str],
    body: str,
    launches: Mapping[str, Mapping[str, int]],
    returns: Any = None,
    partitions: str = "",
    folded: Mapping[str, FoldedConstant] | None = None,
) -> CompiledGraph:
    """``arguments``: by Dynamo's source, shape, strides and dtype; ``body``: the statements of ``call``."""
    names = [f"arg{place}_1" for place in range(len(arguments))]
    forms = list(arguments.values())
    checks = [f"assert_size_stride({n}, {f[0]}, {f[1]})" for n, f in zip(names, forms, strict=True)]
    examples = [
        f"{n} = rand_strided({f[0]}, {f[1]}, device='cuda:0', dtype=torch.{f[2]})"
        for n, f in zip(names, forms, strict=True)
    ]
    text = RUNNER.format(
        names=", ".join(names) + ("," if len(names) == 1 else ""),
        checks=indent("\n".join(checks), " " * 8),
        body=indent(dedent(body).strip(), " " * 12),
        examples=indent("\n".join(examples), " " * 4),
        partitions=partitions,
    )
    chosen = {name: LaunchChoice(constants, 4, 1) for name, constants in launches.items()}
    whole = HEAD + "\n".join(kernels) + text
    return CompiledGraph(tuple(arguments), whole, chosen, returns or {"output": 0}, folded or {})


POINTWISE = kernel(
    "triton_poi_fused_mul_relu_0",
    "in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr",
    """
    xnumel = 264
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tmp1 = tl.full([1], 2.0, tl.float32)
    tmp2 = tmp0 * tmp1
    tmp3 = tl.full([1], 0, tl.int32)
    tmp4 = triton_helpers.maximum(tmp3, tmp2)
    tl.store(out_ptr0 + (x0), tmp4, xmask)
    """,
    operators="aten.mul, aten.relu",
)
POINTWISE_GRAPH = compiled(
    {"L['x']": ((8, 33), (33, 1), "float32")},
    [POINTWISE],
    """
    buf0 = empty_strided_cuda((8, 33), (33, 1), torch.float32)
    stream0 = get_raw_stream(0)
    triton_poi_fused_mul_relu_0.run(arg0_1, buf0, 264, stream=stream0)
    del arg0_1
    return (buf0, )
    """,
    {"triton_poi_fused_mul_relu_0": {"XBLOCK": 64}},
)

NORM = kernel(
    "triton_red_fused_native_layer_norm_0",
    "in_ptr0, in_ptr1, in_ptr2, out_ptr2, xnumel, r0_numel, XBLOCK : tl.constexpr, R0_BLOCK : tl.constexpr",
    """
    xnumel = 6
    r0_numel = 48
    rnumel = r0_numel
    RBLOCK: tl.constexpr = R0_BLOCK
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_base = tl.arange(0, R0_BLOCK)[None, :]
    x0 = xindex
    tmp3_mean = tl.zeros([XBLOCK, R0_BLOCK], tl.float32)
    tmp3_m2 = tl.zeros([XBLOCK, R0_BLOCK], tl.float32)
    tmp3_weight = tl.zeros([XBLOCK, R0_BLOCK], tl.float32)
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        roffset = r0_offset
        r0_1 = r0_index
        tmp0 = tl.load(in_ptr0 + (r0_1 + 48*x0), r0_mask & xmask, eviction_policy='evict_last', other=0.0)
        tmp2 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
        tmp3_mean_next, tmp3_m2_next, tmp3_weight_next = triton_helpers.welford_reduce(
            tmp2, tmp3_mean, tmp3_m2, tmp3_weight, roffset == 0
        )
        tmp3_mean = tl.where(r0_mask & xmask, tmp3_mean_next, tmp3_mean)
        tmp3_m2 = tl.where(r0_mask & xmask, tmp3_m2_next, tmp3_m2)
        tmp3_weight = tl.where(r0_mask & xmask, tmp3_weight_next, tmp3_weight)
    tmp4, tmp5, tmp6 = triton_helpers.welford(tmp3_mean, tmp3_m2, tmp3_weight, 1)
    tmp3 = tmp4[:, None]
    tmp7 = tmp5[:, None]
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        r0_1 = r0_index
        tmp9 = tl.load(in_ptr0 + (r0_1 + 48*x0), r0_mask & xmask, eviction_policy='evict_first', other=0.0)
        tmp18 = tl.load(in_ptr1 + (r0_1), r0_mask, eviction_policy='evict_last', other=0.0)
        tmp21 = tl.load(in_ptr2 + (r0_1), r0_mask, eviction_policy='evict_last', other=0.0)
        tmp11 = tmp9 - tmp3
        tmp12 = tl.full([1, 1], 48.0, tl.float32)
        tmp13 = (tmp7 / tmp12)
        tmp14 = tl.full([1, 1], 1e-05, tl.float32)
        tmp15 = tmp13 + tmp14
        tmp16 = libdevice.rsqrt(tmp15)
        tmp23 = tmp11 * tmp16 * tmp18 + tmp21
        tl.store(out_ptr2 + (r0_1 + 48*x0), tmp23, r0_mask & xmask)
    """,
    heuristic="reduction",
    operators="aten.native_layer_norm",
)
NORM_GRAPH = compiled(
    {
        "L['x']": ((6, 48), (48, 1), "float32"),
        "L['self']._modules['norm']._parameters['weight']": ((48,), (1,), "float32"),
        "L['self']._modules['norm']._parameters['bias']": ((48,), (1,), "float32"),
    },
    [NORM],
    """
    buf3 = empty_strided_cuda((6, 48), (48, 1), torch.float32)
    stream0 = get_raw_stream(0)
    triton_red_fused_native_layer_norm_0.run(arg0_1, arg1_1, arg2_1, buf3, 6, 48, stream=stream0)
    del arg0_1
    return (buf3, )
    """,
    {"triton_red_fused_native_layer_norm_0": {"XBLOCK": 2, "R0_BLOCK": 32}},
)

EPILOGUE = kernel(
    "triton_poi_fused_addmm_tanh_1",
    "in_out_ptr0, xnumel, XBLOCK : tl.constexpr",
    """
    xnumel = 160
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
    tmp0 = tl.load(in_out_ptr0 + (x0), xmask)
    tmp1 = libdevice.tanh(tmp0)
    tl.store(in_out_ptr0 + (x0), tmp1, xmask)
    """,
    operators="aten.addmm, aten.tanh",
    mutated=["in_out_ptr0"],
)
PRODUCT_GRAPH = compiled(
    {
        "L['self']._modules['fc']._parameters['weight']": ((20, 12), (12, 1), "float32"),
        "L['self']._modules['fc']._parameters['bias']": ((20,), (1,), "float32"),
        "L['x']": ((2, 4, 12), (48, 12, 1), "float32"),
    },
    [EPILOGUE],
    """
    buf0 = empty_strided_cuda((8, 20), (20, 1), torch.float32)
    extern_kernels.addmm(arg1_1, reinterpret_tensor(arg2_1, (8, 12), (12, 1), 0), \
reinterpret_tensor(arg0_1, (12, 20), (1, 12), 0), alpha=1, beta=1, out=buf0)
    del arg0_1
    buf1 = reinterpret_tensor(buf0, (2, 4, 20), (80, 20, 1), 0); del buf0  # reuse
    stream0 = get_raw_stream(0)
    triton_poi_fused_addmm_tanh_1.run(buf1, 160, stream=stream0)
    buf2 = buf1; del buf1
    return (buf2, reinterpret_tensor(buf2, (2, 20), (80, 1), 60), )
    """,
    {"triton_poi_fused_addmm_tanh_1": {"XBLOCK": 64}},
    {"dict": {"all": {"output": 0}, "last": {"output": 1}}},
)

COUNTER = kernel(
    "triton_per_fused_add_sum_0",
    "in_ptr0, in_ptr1, out_ptr0, out_ptr1, xnumel, r0_numel, XBLOCK : tl.constexpr",
    """
    xnumel = 10
    r0_numel = 5
    R0_BLOCK: tl.constexpr = 8
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    r0_mask = r0_index < r0_numel
    x0 = xindex
    r0_1 = r0_index
    tmp0 = tl.load(in_ptr0 + (x0 + 10*r0_1), r0_mask & xmask, other=0.0)
    tmp5 = tl.load(in_ptr1 + (x0), xmask)
    tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
    tmp3 = tl.where(r0_mask & xmask, tmp1, 0)
    tmp4 = tl.sum(tmp3, 1)[:, None].to(tl.float32)
    tmp6 = tmp5 + tmp4
    tl.store(out_ptr1 + (x0), tmp6, xmask)
    tl.store(out_ptr0 + (x0), tmp4, xmask)
    """,
    heuristic="persistent_reduction",
    operators="aten.sum, aten.add",
    mutated=["in_ptr1", "out_ptr1"],
)
COUNTER_GRAPH = compiled(
    {
        "L['x']": ((5, 10), (10, 1), "float32"),
        "L['self']._buffers['total']": ((10,), (1,), "float32"),
    },
    [COUNTER],
    """
    buf0 = empty_strided_cuda((10, ), (1, ), torch.float32)
    stream0 = get_raw_stream(0)
    triton_per_fused_add_sum_0.run(arg0_1, arg1_1, buf0, arg1_1, 10, 5, stream=stream0)
    del arg0_1
    del arg1_1
    return (buf0, )
    """,
    {"triton_per_fused_add_sum_0": {"XBLOCK": 4}},
)

PAIRS = kernel(
    "triton_poi_fused_index_mul_0",
    "in_ptr0, in_ptr1, in_ptr2, in_ptr3, out_ptr0, xnumel, XBLOCK : tl.constexpr",
    """
    xnumel = 60
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = (xindex % 10)
    x1 = xindex // 10
    x2 = xindex
    tmp0 = tl.load(in_ptr0 + (x0), xmask, eviction_policy='evict_last')
    tmp6 = tl.load(in_ptr1 + (x0), xmask, eviction_policy='evict_last')
    tmp12 = tl.load(in_ptr3 + (x0), xmask, eviction_policy='evict_last')
    tmp1 = tl.full([XBLOCK], 5, tl.int32)
    tmp2 = tmp0 + tmp1
    tmp3 = tmp0 < 0
    tmp4 = tl.where(tmp3, tmp2, tmp0)
    tl.device_assert(((0 <= tmp4) & (tmp4 < 5)) | ~(xmask), "index out of bounds: 0 <= tmp4 < 5")
    tmp7 = tmp6 + tmp1
    tmp8 = tmp6 < 0
    tmp9 = tl.where(tmp8, tmp7, tmp6)
    tl.device_assert(((0 <= tmp9) & (tmp9 < 5)) | ~(xmask), "index out of bounds: 0 <= tmp9 < 5")
    tmp11 = tl.load(in_ptr2 + (tmp9 + 5*tmp4 + 25*x1), xmask, eviction_policy='evict_last')
    tmp13 = tmp11 * tmp12
    tl.store(out_ptr0 + (x2), tmp13, xmask)
    """,
    operators="aten.index, aten.mul",
)
PAIRS_GRAPH = compiled(
    {"L['x']": ((6, 5, 5), (25, 5, 1), "float32")},
    [PAIRS],
    """
    buf0 = empty_strided_cuda((6, 10), (10, 1), torch.float32)
    raw_stream0 = get_raw_stream(0)
    triton_poi_fused_index_mul_0.run(_tensor_constant0_cuda0, _tensor_constant1_cuda0, arg0_1, \
_tensor_constant2_cuda0, buf0, 60, stream=raw_stream0)
    del arg0_1
    return (buf0, )
    """,
    {"triton_poi_fused_index_mul_0": {"XBLOCK": 32}},
    folded={
        "_tensor_constant0_cuda0": FoldedConstant("int64", (10,), "1 2 2 3 3 3 4 4 4 4"),
        "_tensor_constant1_cuda0": FoldedConstant("int64", (10,), "0 0 1 0 1 2 0 1 2 3"),
        "_tensor_constant2_cuda0": FoldedConstant(
            "float32", (2, 5), "0.5 1.0 inf 2.0 nan 3.0 3.5 4.0 -inf 5.0"
        ),
    },
)
"""``torch.tensor([...])`` as tensors of the module: places, and factors with all kinds of numbers."""


def shared_scan(name: str, dtype: str, scratch: str, words: int, helper: str, rest: str) -> str:
    """A scan along rows of 1000, in the form of those whose rows several programs share."""
    combining = (
        "@triton.jit\ndef _triton_helper_fn_add0(arg0_0, arg1_0):\n"
        "    tmp0 = arg0_0 + arg1_0\n    return tmp0\n\n@triton_heuristics."
    )
    text = kernel(
        name,
        "in_ptr0, out_ptr0, ws_ptr, xnumel, r0_numel, R0_BLOCK : tl.constexpr",
        f"""
        xnumel = 3
        XBLOCK: tl.constexpr = 1
        r0_numel = 1000
        rnumel = r0_numel
        RBLOCK: tl.constexpr = R0_BLOCK
        xoffset = tl.program_id(1) * XBLOCK
        xindex = tl.full([1], xoffset, tl.int32)
        xmask = xindex < xnumel
        r0_offset = tl.program_id(0) * R0_BLOCK
        r0_index = r0_offset + tl.arange(0, R0_BLOCK)[:]
        r0_mask = r0_index < r0_numel
        roffset = r0_offset
        r0_1 = r0_index
        x0 = xindex
        tmp0 = tl.load(in_ptr0 + (r0_1 + 1000*x0), r0_mask, other=0.0)
        tmp1 = tmp0.to({dtype})
        tmp2 = tl.broadcast_to(tmp1, [R0_BLOCK])
        tmp3 = tl.reduce(tmp2, 0, _triton_helper_fn_add0)
        tmp4 = triton_helpers.{helper}(
            ws_ptr.to(tl.pointer_type({scratch})) + xoffset * {words} * tl.num_programs(0),
            tmp3,
            tl.program_id(0),
            _triton_helper_fn_add0,{rest}
        )
        tmp5 = tl.associative_scan(tmp2, 0, _triton_helper_fn_add0)
        tmp6 = _triton_helper_fn_add0(tmp4, tmp5)
        tmp7 = tl.where(roffset == 0, tmp5, tmp6)
        tl.store(out_ptr0 + (r0_1 + 1000*x0), tmp7, r0_mask)
        """,
        heuristic="split_scan",
        grid="SplitScanGrid",
        operators="aten.cumsum",
        mutated=["ws_ptr"],
    )
    return text.replace("@triton_heuristics.", combining, 1)


def scan_graph(name: str, text: str, dtype: str, bytes: int) -> CompiledGraph:
    return compiled(
        {"L['x']": ((3, 1000), (1000, 1), dtype)},
        [text],
        f"""
        buf0 = empty_strided_cuda((3, 1000), (1000, 1), torch.{dtype})
        workspace_0 = empty_strided_cuda(({bytes}, ), (1, ), torch.uint8)
        workspace_0.zero_()
        raw_stream0 = get_raw_stream(0)
        {name}.run(arg0_1, buf0, workspace_0, 3, 1000, stream=raw_stream0)
        del workspace_0
        del arg0_1
        return (buf0, )
        """,
        {name: {"R0_BLOCK": 256}},
    )


LOOKBACK = "exclusive_scan_decoupled_lookback"
SCAN = shared_scan(
    "triton_spl_fused_cumsum_0",
    "tl.float32",
    "tl.uint64",
    1,
    LOOKBACK,
    " DTYPE_VALUE_AS_UINT=tl.uint32, DTYPE_PACK=tl.uint64",
)
SCAN_GRAPH = scan_graph("triton_spl_fused_cumsum_0", SCAN, "float32", 96)
LONG_SCAN = shared_scan("triton_spl_fused_cumsum_0", "tl.int64", "tl.uint64", 3, f"{LOOKBACK}_64", "")
LONG_SCAN_GRAPH = scan_graph("triton_spl_fused_cumsum_0", LONG_SCAN, "int64", 288)
