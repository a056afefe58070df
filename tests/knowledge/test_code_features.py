"""What the text of a kernel file shows, and that it is only ever read."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from egg.core.bottleneck import Value
from egg.knowledge.code_features import code_features
from egg.knowledge.vocabulary import CODE

HONEST = Path(__file__).parents[1] / "corpus" / "honest"
EXAMPLES = Path(__file__).parents[2] / "examples"


def corpus(name: str) -> dict[str, Value]:
    return dict(code_features((HONEST / f"{name}.py").read_text(encoding="utf-8")))


def kernel(body: str, parameters: str = "x, n, BLOCK: tl.constexpr", host: str = "", top: str = "") -> str:
    inside = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    forward = textwrap.indent(textwrap.dedent(host or "work[(1,)](x, 8, BLOCK=64)").strip(), " " * 8)
    return (
        f"import torch\nimport triton\nimport triton.language as tl\nfrom torch import nn\n"
        f"import torch.nn.functional as F\n{textwrap.dedent(top)}\n@triton.jit\ndef work({parameters}):\n"
        f"{inside}\n\nclass ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.fc = nn.Linear(4, 4)\n        self.scale = torch.ones(4).sum()\n\n"
        f"    def forward(self, x):\n{forward}\n        return x\n"
    )


def of(body: str, **more: str) -> dict[str, Value]:
    return dict(code_features(kernel(body, **more)))


def test_without_a_file_nothing_is_claimed() -> None:
    assert code_features(None) == {}


@pytest.mark.parametrize("source", ["def broken(:", "x = '\0'", "(" * 5000, "x = 1\n" * 200_000])
def test_what_cannot_be_read_is_a_base_and_no_more(source: str) -> None:
    assert code_features(source) == {"has_base": True}


def test_every_name_of_the_vocabulary_is_told_and_no_other() -> None:
    assert code_features(kernel("tl.store(x, 1)")).keys() == CODE.keys()


def test_nothing_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    code_features(f"open({str(mark)!r}, 'w')\n" + kernel("pass"))
    assert not mark.exists()


def test_kernels_that_were_written_for_the_judge() -> None:
    split = corpus("matmul_split_k")
    assert (split["uses_dot"], split["uses_split_k"], split["uses_atomics"]) == (True, True, True)
    assert corpus("cuda_graph")["uses_graph"]
    assert corpus("autotuned")["uses_autotune"]
    assert corpus("matmul_descriptor")["uses_descriptors"]
    assert corpus("matmul_tf32x3")["input_precision"] == "tf32x3"
    assert corpus("matmul")["input_precision"] == "ieee"
    assert corpus("library_gemm")["library_calls"] == 1
    plain = corpus("scale_shift")
    assert plain["source_kernels"] == 1
    assert plain["input_precision"] == "none"
    for habit in ("uses_dot", "uses_graph", "uses_descriptors", "uses_split_k", "uses_grouping"):
        assert not plain[habit], habit


def test_helpers_are_no_kernels_of_their_own() -> None:
    top = "@triton.jit\ndef helper(a):\n    return a * 2\n"
    assert of("tl.store(x, helper(n))", top=top)["source_kernels"] == 1
    assert of("tl.store(x, helper(n))", top=top, host="launch(work, x)")["source_kernels"] == 1


@pytest.mark.parametrize(
    ("body", "masked"),
    [
        ("tl.load(x, mask=n > 0)", True),
        ("tl.load(x, n > 0)", True),
        ("tl.store(x, 1, n > 0)", True),
        ("tl.store(x, 1)", False),
        ("tl.load(x, mask=None)", False),
        ("tl.atomic_add(x, 1, mask=n > 0)", True),
    ],
)
def test_masks_by_name_and_by_place(body: str, masked: bool) -> None:
    assert of(body)["uses_masks"] is masked


GROUPED = """
    pid = tl.program_id(0)
    per = GROUP_M * tl.cdiv(n, BLOCK)
    first = (pid // per) * GROUP_M
    size = min(n - first, GROUP_M)
    m = first + (pid % per) % size
    k = (pid % per) // size
    tl.store(x + m + k, 1)
"""
EXACT = """
    pid = tl.program_id(0)
    per = GROUP_M * n
    m = (pid // per) * GROUP_M + (pid % per) % GROUP_M
    tl.store(x + m, 1)
"""
UNRAVELLED = """
    pid = tl.program_id(0)
    image = pid // (n * BLOCK)
    rest = pid % (n * BLOCK)
    row = rest // BLOCK
    column = rest % BLOCK
    tl.store(x + image + row * n + column, 1)
"""


@pytest.mark.parametrize(
    ("body", "grouped"),
    [(GROUPED, True), (EXACT, True), (UNRAVELLED, False), ("a, b = tl.swizzle2d(0, 1, 2, 3, 4)", True)],
)
def test_programs_in_groups(body: str, grouped: bool) -> None:
    found = of(body, parameters="x, n, BLOCK: tl.constexpr, GROUP_M: tl.constexpr")
    assert found["uses_grouping"] is grouped


@pytest.mark.parametrize(
    ("body", "persistent"),
    [
        ("for t in range(tl.program_id(0), n, tl.num_programs(0)):\n    tl.store(x + t, 1)", True),
        ("p = tl.program_id(0)\nfor t in tl.range(p, n, NUM_SMS):\n    tl.store(x + t, 1)", True),
        ("t = tl.program_id(0)\nwhile t < n:\n    tl.store(x + t, 1)\n    t += tl.num_programs(0)", True),
        ("for k in range(0, n, BLOCK):\n    tl.store(x + k, 1)", False),
        ("for k in range(tl.program_id(0) * BLOCK, n, BLOCK * 4):\n    tl.store(x + k, 1)", False),
    ],
)
def test_persistent_loops(body: str, persistent: bool) -> None:
    found = of(body, parameters="x, n, BLOCK: tl.constexpr, NUM_SMS: tl.constexpr = 132")
    assert found["uses_persistent_loop"] is persistent
    assert found["uses_loops"]


@pytest.mark.parametrize(
    ("call", "more", "precision"),
    [
        ("tl.dot(a, b)", {}, "default"),
        ("tl.dot(a, b, allow_tf32=False)", {}, "ieee"),
        ("tl.dot(a, b, allow_tf32=True)", {}, "tf32"),
        ("tl.dot(a, b, input_precision=MODE)", {"top": 'MODE: tl.constexpr = "tf32x3"'}, "tf32x3"),
        ("tl.dot(a, b, input_precision=MODE)", {"top": 'MODE = tl.constexpr("ieee")'}, "ieee"),
        (
            "tl.dot(a, b, input_precision=P)",
            {"parameters": "x, a, b, P: tl.constexpr", "host": 'work[(1,)](x, x, x, P="tf32")'},
            "tf32",
        ),
        (
            "tl.dot(a, b, input_precision=P)",
            {"parameters": "x, a, b, P: tl.constexpr", "host": 'work[(1,)](x, x, x, "bf16x3")'},
            "bf16x3",
        ),
        ("tl.dot(a, b, input_precision=UNKNOWN)", {}, "default"),
    ],
)
def test_the_precision_of_products(call: str, more: dict[str, str], precision: str) -> None:
    assert of(f"c = {call}\ntl.store(x, c)", **more)["input_precision"] == precision


@pytest.mark.parametrize(
    ("host", "calls"),
    [
        ("x = x @ x.T", 1),
        ("x = torch.matmul(x, x)", 1),
        ("x = F.relu(self.fc(x))", 2),
        ("x = x.softmax(-1).sum(-1)", 2),
        ("x = torch.empty_like(x).view(4, -1).contiguous()", 0),
        ("x = F.pad(x, (1, 1))", 0),
        ("work[(triton.cdiv(8, 4),)](x, 8, BLOCK=max(2, 4))", 0),
    ],
)
def test_compute_left_to_libraries(host: str, calls: int) -> None:
    assert of("tl.store(x, tl.sum(n))", host=host)["library_calls"] == calls


def test_block_sizes_wherever_they_are_written() -> None:
    assert of("tl.store(x, 1)")["block_sizes_largest"] == 64
    assert of("tl.store(x, 1)", host="work[(1,)](x, 8, 256)")["block_sizes_largest"] == 256
    assert of("tl.store(x, 1)", top="BLOCK_M, BLOCK_N = 128, 512")["block_sizes_largest"] == 512
    config = "C = [triton.Config({'BLOCK': 2048}, num_warps=4), triton.Config({'BLOCK': 32})]"
    assert of("tl.store(x, 1)", top=config)["block_sizes_largest"] == 2048
    assert of("tl.store(x, 1)", top="HIDDEN = 8192")["block_sizes_largest"] == 64


def test_tunables_and_hints() -> None:
    top = 'TUNABLES = {"BLOCK": (64, 128), "NUM_WARPS": (4, 8)}'
    found = of('v = tl.load(x, eviction_policy="evict_first")\ntl.store(x, v)', top=top)
    assert found["tunables"] == 2
    assert found["uses_eviction_hints"]
    assert not of("tl.store(x, 1)")["uses_eviction_hints"]


def test_a_graph_of_ones_own_is_none() -> None:
    assert not of("tl.store(x, 1)", host="graph(x)")["uses_graph"]
    assert of("tl.store(x, 1)", host="g = torch.cuda.CUDAGraph()")["uses_graph"]


def test_the_examples_are_read() -> None:
    for path in sorted(EXAMPLES.glob("*/*.py")):
        assert code_features(path.read_text(encoding="utf-8"))["has_base"], path


DEEP = {
    "a name of many parts": f"x = a{'.b' * 1500}()\n",
    "a call of a call": f"x = a{'()' * 1500}\n",
    "a sum of many terms": f"@triton.jit\ndef k(x):\n    y = (tl.program_id(0) % 4{' + x' * 1500}) % 3\n",
}


@pytest.mark.parametrize("source", DEEP.values(), ids=list(DEEP))
def test_what_is_too_deep_to_follow_shows_nothing(source: str) -> None:
    assert code_features(source)["has_base"]


@pytest.mark.timeout(20)
def test_names_set_many_times_over_are_followed_once() -> None:
    steps = [f"a{n} = a{n - 1} + a{n - 1}" for n in range(1, 11) for _ in range(20)]
    regrouped = ["a0 = tl.program_id(0) % n", *steps, "tl.store(x, a10 // GROUP_M)"]
    assert of("\n".join(regrouped))["uses_grouping"]
