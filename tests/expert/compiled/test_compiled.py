"""Generated code as a kernel file: what the judge says of it, what stands in it, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from egg.core.compiled import CompiledGraph, FoldedConstant
from egg.core.evaluation import Accepted
from egg.core.policy import LibraryCalls
from egg.core.source import Task
from egg.evaluator.static import findings
from egg.expert.compiled.translate import CompiledFile, Refusal, compiled_file
from egg.hardware.gpus import resolve
from tests.conftest import JudgeFunction
from tests.expert.captured import program
from tests.expert.compiled import texts

H200 = resolve("H200")
POINTWISE = program("torch.relu(x * 2)", "torch.randn(B, C)", knobs="B, C = 8, 33")
NORM = program("self.norm(x)", "torch.randn(B, C)", "self.norm = nn.LayerNorm(C)", "B, C = 6, 48")
PRODUCT = program(
    'y = torch.tanh(self.fc(x)); return {"all": y, "last": y[:, -1]}',
    "torch.randn(B, T, C)",
    "self.fc = nn.Linear(C, 20)",
    "B, T, C = 2, 4, 12",
)
COUNTER = program(
    "y = x.sum(0); self.total += y; return y",
    "torch.randn(B, C)",
    'self.register_buffer("total", torch.zeros(C))',
    "B, C = 5, 10",
)
PAIRS = program(
    "low = torch.tensor([i for i in range(5) for _ in range(i)], device=x.device); "
    "other = torch.tensor([j for i in range(5) for j in range(i)], device=x.device); "
    "inf, nan = float('inf'), float('nan'); "
    "factors = torch.tensor([[0.5, 1, inf, 2, nan], [3, 3.5, 4, -inf, 5]], device=x.device); "
    "return x[:, low, other] * factors.flatten()",
    "torch.randn(B, 5, 5)",
    knobs="B = 6",
)
SCAN = program("x.cumsum(-1)", "torch.randn(B, C)", knobs="B, C = 3, 1000")
LONG_SCAN = program("x.cumsum(-1)", "torch.randint(-9, 9, (B, C))", knobs="B, C = 3, 1000")
WHOLE = {
    "pointwise": (POINTWISE, texts.POINTWISE_GRAPH),
    "rows": (NORM, texts.NORM_GRAPH),
    "product": (PRODUCT, texts.PRODUCT_GRAPH),
    "buffer": (COUNTER, texts.COUNTER_GRAPH),
    "folded": (PAIRS, texts.PAIRS_GRAPH),
    "shared scan": (SCAN, texts.SCAN_GRAPH),
    "shared scan of 64 bits": (LONG_SCAN, texts.LONG_SCAN_GRAPH),
}


def written(task: Task, graph: CompiledGraph, **options: bool) -> CompiledFile:
    made = compiled_file(task, graph, H200, **options)
    assert isinstance(made, CompiledFile), made
    return made


def refusal(task: Task, graph: CompiledGraph) -> str:
    made = compiled_file(task, graph, H200)
    assert isinstance(made, Refusal), made.source
    return made.reason


@pytest.mark.parametrize("name", WHOLE)
def test_the_judge_accepts(name: str, judged: JudgeFunction) -> None:
    task, graph = WHOLE[name]
    evaluation = judged(task, written(task, graph).source, target="H200")
    assert isinstance(evaluation.verdict, Accepted), evaluation.verdict


@pytest.mark.parametrize("name", ["pointwise", "rows", "product", "folded", "shared scan"])
def test_a_file_that_replays_passes_the_text_gate(name: str) -> None:
    task, graph = WHOLE[name]
    made = written(task, graph, replay=True, sweep=True)
    assert made.replays
    assert "torch.cuda.graph(" in made.source
    assert "TUNABLES = {" in made.source
    assert findings(made.source, LibraryCalls.ALLOW).refusal() is None


def test_a_wrong_kernel_is_refused_by_the_judge(judged: JudgeFunction) -> None:
    """The judge sees the generated arithmetic: a file is not accepted because of where it comes from."""
    wrong = replace(texts.POINTWISE_GRAPH, text=texts.POINTWISE_GRAPH.text.replace("[1], 2.0", "[1], 2.25"))
    evaluation = judged(POINTWISE, written(POINTWISE, wrong).source, target="H200")
    assert not isinstance(evaluation.verdict, Accepted)


def test_the_host_code_reads_like_one() -> None:
    source = written(PRODUCT, texts.PRODUCT_GRAPH).source
    assert "torch.addmm(self.fc.bias, x.view(8, 12), self.fc.weight.t(), out=buf0)" in source
    assert "buf1 = buf0.view(2, 4, 20)" in source
    assert "result_1 = buf1.as_strided((2, 20), (80, 1), 60)" in source
    assert 'return {"all": buf1, "last": result_1}' in source
    for name in ("triton_helpers", "reinterpret_tensor", "extern_kernels", "xnumel,", "get_raw_stream"):
        assert name not in source


def test_folded_tensors_are_made_once_for_a_device() -> None:
    source = written(PAIRS, texts.PAIRS_GRAPH).source
    assert "torch.tensor(" not in source[source.index("class ModelNew") :]
    assert "folded_2 = self.made_once(make_folded_2, x.device)" in source


def test_wrong_numbers_are_refused_by_the_judge(judged: JudgeFunction) -> None:
    places = {**texts.PAIRS_GRAPH.folded}
    places["_tensor_constant0_cuda0"] = FoldedConstant("int64", (10,), "1 2 2 3 3 3 4 4 4 3")
    wrong = written(PAIRS, replace(texts.PAIRS_GRAPH, folded=places))
    assert not isinstance(judged(PAIRS, wrong.source, target="H200").verdict, Accepted)


def test_pieces_of_a_shared_scan_never_outnumber_the_words_of_its_workspace() -> None:
    source = written(SCAN, texts.SCAN_GRAPH, sweep=True).source
    assert "workspace_0.zero_()" in source
    assert "[(triton.cdiv(1000, CUMSUM_0_R0_BLOCK), 3)](" in source
    assert '"CUMSUM_0_R0_BLOCK": (256, 512),' in source


@pytest.mark.parametrize("graph", [texts.NORM_GRAPH, texts.PAIRS_GRAPH])
def test_data_survives_json(graph: CompiledGraph) -> None:
    assert CompiledGraph.from_json(graph.to_json()) == graph


def test_a_log_without_folded_tensors_is_read() -> None:
    data = texts.NORM_GRAPH.to_json()
    del data["folded"]
    assert CompiledGraph.from_json(data) == texts.NORM_GRAPH


def changed(graph: CompiledGraph, old: str, new: str) -> CompiledGraph:
    assert old in graph.text
    return replace(graph, text=graph.text.replace(old, new))


REFUSED = {
    "an unknown grid": (changed(texts.POINTWISE_GRAPH, "'Grid1D'", "'CooperativeReductionGrid'"), "grid"),
    "a template": (changed(texts.POINTWISE_GRAPH, "heuristics.pointwise", "heuristics.template"), "template"),
    "random numbers": (changed(texts.POINTWISE_GRAPH, "tmp0 * tmp1", "tmp0 * tl.rand(1, x0)"), "random"),
    "an unknown helper": (
        changed(texts.POINTWISE_GRAPH, "triton_helpers.maximum", "triton_helpers.sort_with_index"),
        "sort_with_index",
    ),
    "seeds": (
        changed(
            texts.POINTWISE_GRAPH,
            "stream0 =",
            "aten.randint.low_out(0, 9, [1], out=buf0)\n            stream0 =",
        ),
        "random",
    ),
    "partitions": (changed(texts.POINTWISE_GRAPH, "partitions=[]", "partitions=[partition_0]"), "partition"),
    "a folded constant": (
        changed(texts.POINTWISE_GRAPH, "run(arg0_1,", "run(_tensor_constant0,"),
        "_tensor_constant0",
    ),
    "an argument on the host": (changed(texts.POINTWISE_GRAPH, "device='cuda:0'", "device='cpu'"), "host"),
    "another shape": (changed(texts.POINTWISE_GRAPH, "(arg0_1, (8, 33)", "(arg0_1, (4, 66)"), "compiled as"),
    "no choice": (replace(texts.POINTWISE_GRAPH, launches={}), "chosen"),
    "a source that is not known": (replace(texts.POINTWISE_GRAPH, arguments=("G['x']",)), "G['x']"),
    "a result that is not known": (replace(texts.POINTWISE_GRAPH, returns={"output": 3}), "returns"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_file_is_made_of_is_refused_with_a_reason(name: str) -> None:
    graph, word = REFUSED[name]
    assert word in refusal(POINTWISE, graph)


def folded_as(constant: FoldedConstant | None) -> CompiledGraph:
    others = {name: item for name, item in texts.PAIRS_GRAPH.folded.items() if "constant2" not in name}
    return replace(
        texts.PAIRS_GRAPH, folded=others | ({"_tensor_constant2_cuda0": constant} if constant else {})
    )


FOLDED_REFUSED = {
    "unknown numbers": (folded_as(None), "_tensor_constant2_cuda0"),
    "too few numbers": (folded_as(FoldedConstant("float32", (2, 5), "1.0")), "1 numbers"),
    "no numbers": (folded_as(FoldedConstant("int64", (1,), "len")), "no numbers"),
    "another dtype": (folded_as(FoldedConstant("complex64", (1,), "1j")), "complex64"),
    "one that is returned": (
        changed(
            texts.PAIRS_GRAPH, "(buf0, )", "(reinterpret_tensor(_tensor_constant2_cuda0, (10, ), (1, ), 0), )"
        ),
        "returns",
    ),
    "one that is changed": (
        changed(
            texts.PAIRS_GRAPH, "raw_stream0 =", "_tensor_constant2_cuda0.zero_()\n            raw_stream0 ="
        ),
        "changes",
    ),
}


@pytest.mark.parametrize("name", FOLDED_REFUSED)
def test_folded_tensors_that_no_file_is_made_of(name: str) -> None:
    graph, word = FOLDED_REFUSED[name]
    assert word in refusal(PAIRS, graph)


def test_a_buffer_that_python_sets_is_refused() -> None:
    """The compiled graph returns the new value, and Python's code around it stores it."""
    outside = changed(texts.COUNTER_GRAPH, "['in_ptr1', 'out_ptr1']", "[]")
    assert "total" in refusal(COUNTER, outside)
