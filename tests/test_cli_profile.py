"""``egg profile`` by the real command: facts, a kernel compiled for a GPU that is not here, bad input."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from egg.analysis.diagnose import diagnose
from egg.api import profiling
from egg.api.profiling import ProfileReport
from egg.cli.app import app
from egg.cli.profile_view import report_view
from egg.cli.render import console
from egg.core.bottleneck import MEANINGS, Limiter
from egg.core.profile import Counter, KernelProfile, Lowered, Profile, Rung
from egg.core.resources import Access, KernelResources, KernelWork
from egg.hardware.gpus import resolve

EXAMPLES = Path(__file__).parents[1] / "examples"
SOFTMAX = EXAMPLES / "row_softmax" / "row_softmax.py"
FUSED = EXAMPLES / "row_softmax" / "fused.py"
LINEAR = EXAMPLES / "linear_gelu_residual" / "linear_gelu_residual.py"

BROKEN = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def broken(x_ptr, y_ptr):
    i = tl.arange(0, 100)
    tl.store(y_ptr + i, tl.load(x_ptr + i))


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        broken[(1,)](x, y)
        return y
"""

LOOKS_AT_VALUES = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum().item() > 0 else x + 1


def get_inputs():
    return [torch.rand(1024, 1024)]


def get_init_inputs():
    return []
"""


def egg(*arguments: object):
    return CliRunner().invoke(app, ["profile", *(str(a) for a in arguments)])


def shown(report: ProfileReport, width: int = 120, *, plain: bool = False) -> str:
    screen = console()
    screen.width = width
    with screen.capture() as captured:
        screen.print(report_view(report, width, plain=plain))
    return captured.get()


@pytest.fixture(scope="module")
def softmax(tmp_path_factory) -> tuple[dict, str]:
    """The report on a kernel and its picture, by the installed command in a process of its own."""
    picture = tmp_path_factory.mktemp("picture") / "roofline.svg"
    command = [sys.executable, "-m", "egg.cli", "profile", str(SOFTMAX), str(FUSED), "--json"]
    options = ["--device", "cpu", "--target", "h100", "--svg", str(picture)]
    ended = subprocess.run([*command, *options], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout), picture.read_text()


# -- compiled code -----------------------------------------------------------------------------------


def test_the_code_of_a_kernel_is_shown_and_a_wrong_name_lists_the_right_ones():
    done = egg(SOFTMAX, FUSED, "--device", "cpu", "--target", "h200", "--code", "softmax_rows")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("softmax_rows for H200: grid 16384 x 1 x 1")
    assert "- special functions" in done.stdout
    assert "SASS (line of the file | instruction):" in done.stdout
    wrong = egg(SOFTMAX, FUSED, "--device", "cpu", "--code", "softmax:3", "--json")
    assert wrong.exit_code == 2
    assert "softmax_rows" in json.loads(wrong.stdout)["hint"]
    assert egg(SOFTMAX, "--code", "softmax_rows").exit_code == 2


def test_a_kernel_that_does_not_compile_has_no_code(tmp_path):
    file = tmp_path / "broken.py"
    file.write_text(BROKEN)
    done = egg(SOFTMAX, file, "--device", "cpu", "--code", "broken")
    assert done.exit_code == 1
    assert "arange" in done.output


# -- facts -------------------------------------------------------------------------------------------


def test_facts_of_a_product_and_what_rides_on_it():
    result = egg(LINEAR, "--json", "--device", "cpu", "--target", "h200")
    assert result.exit_code == 0, result.output
    report = ProfileReport.from_json(json.loads(result.stdout))
    assert report.workload is not None
    assert report.facts is not None
    assert report.facts.flops == 2 * 4096 * 2048 * 2048
    assert report.facts.least_bytes == 4 * (2 * 4096 * 2048 + 2048 * 2048 + 2048)
    assert report.facts.eager_launches == 3
    assert report.gpu.floor_milliseconds is not None
    savings = report.gpu.savings
    assert savings is not None
    assert report.gpu.floor_milliseconds < savings.whole <= savings.pointwise_fused < savings.eager
    assert (report.profile, report.diagnosis, report.failure) == (None, None, None)


def test_facts_are_printed_with_what_is_predicted_named():
    result = egg(LINEAR, "--device", "cpu", "--target", "h200")
    assert result.exit_code == 0
    text = result.stdout
    for word in ("linear.weight", "2048x2048", "contiguous", "aten.addmm", "34.4 G", "83.9 MB"):
        assert word in text
    assert "252 MB, 3x the least" in text
    [floor] = [line for line in text.splitlines() if line.startswith("floor on H200")]
    assert "0.104 ms (predicted); arithmetic-bound" in floor
    [saved] = [line for line in text.splitlines() if line.startswith("fusion could save")]
    assert saved.rstrip().endswith("(predicted)")
    assert "the task with everything fused: 410 FLOP/byte" in text


def test_the_target_and_the_precision_change_the_floor():
    def floor(*options: str) -> float:
        printed = json.loads(egg(LINEAR, "--json", "--device", "cpu", *options).stdout)
        return printed["gpu"]["floor_milliseconds"]

    assert floor("--target", "a100") > floor("--target", "h200") > floor("--target", "b200")
    assert floor("--target", "h200", "--precision", "bf16") < floor("--target", "h200")


def test_the_picture_of_a_task_alone(tmp_path):
    result = egg(SOFTMAX, "--device", "cpu", "--svg", tmp_path / "task.svg")
    assert result.exit_code == 0
    assert result.stdout.rstrip().endswith("task.svg")
    text = (tmp_path / "task.svg").read_text()
    ElementTree.fromstring(text)
    assert "everything fused" in text


def test_long_lists_are_shortened(tmp_path):
    layers = "\n".join(f"        self.layer{i} = nn.Linear({16 + i}, {17 + i})" for i in range(40))
    source = f"""
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{layers}

    def forward(self, x):
        for i in range(40):
            x = torch.tanh(getattr(self, f"layer{{i}}")(x))
        return x


def get_inputs():
    return [torch.rand(8, 16)]


def get_init_inputs():
    return []
"""
    (tmp_path / "deep.py").write_text(source)
    result = egg(tmp_path / "deep.py", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "... and 68 more" in result.stdout
    assert re.search(r"\.\.\. and 68 more +68 kinds", result.stdout)
    assert len(result.stdout.splitlines()) < 90


# -- a kernel ----------------------------------------------------------------------------------------


def test_the_report_on_a_kernel_round_trips(softmax):
    data, _ = softmax
    report = ProfileReport.from_json(data)
    assert report.to_json() == data
    assert data["schema"] == "egg.profile-report/1"
    assert (report.task, report.candidate, report.gpu.name) == ("row_softmax", "fused", "H100 SXM")
    assert report.profile is not None
    assert report.profile.rung is Rung.RESOURCES
    assert [lowered.rung for lowered in report.profile.lowered] == [Rung.COUNTERS, Rung.TIMES]
    [kernel] = report.profile.kernels
    assert (kernel.name, kernel.milliseconds) == ("softmax_rows", None)
    assert kernel.predicted_milliseconds is not None
    assert kernel.resources is not None
    assert kernel.resources.work is not None
    assert kernel.resources.work.distinct_bytes == 2 * 4 * 16384 * 1024
    assert report.diagnosis is not None
    assert report.diagnosis.whole.limiter is Limiter.DRAM


def test_another_schema_is_refused(softmax):
    with pytest.raises(ValueError, match=r"egg\.profile-report/1"):
        ProfileReport.from_json({**softmax[0], "schema": "egg.profile-report/2"})


def test_the_report_in_words(softmax):
    text = shown(ProfileReport.from_json(softmax[0]))
    [time] = [line for line in text.splitlines() if line.startswith("time  ")]
    assert "predicted, not measured; 1 launch" in time
    for word in ("seen by", "resources", "not by times or counters", "dram", "evidence"):
        assert word in text
    for word in ("wrong if", "registers", "none", "max 100%", "of its roof, predicted"):
        assert word in text
    [header] = [line for line in text.splitlines() if "share" in line and "limiter" in line]
    [row] = [line for line in text.splitlines() if line.startswith("A") and " ms" in line]
    assert header.split()[:2] == ["kernel", "predicted"]
    assert "dram" in row


def test_a_narrow_terminal_and_one_without_unicode(softmax):
    report = ProfileReport.from_json(softmax[0])
    assert max(map(len, shown(report, 80).splitlines())) <= 80
    picture = shown(report, 80, plain=True).split("FLOP/s", 1)[1]
    assert "FLOP per byte" in picture
    chart = [line for line in picture.splitlines() if "|" in line]
    assert len(chart) > 8
    assert all(line.isascii() for line in chart)


def test_the_picture_of_a_kernel(softmax):
    _, picture = softmax
    root = ElementTree.fromstring(picture)
    assert len(picture) < 30_000
    assert len(list(root.iter("{http://www.w3.org/2000/svg}circle"))) == 1
    assert "softmax_rows" in picture
    assert "times predicted, not measured" in picture


def test_a_kernel_that_does_not_compile_is_1_with_its_own_words(tmp_path):
    (tmp_path / "broken.py").write_text(BROKEN)
    result = egg(SOFTMAX, tmp_path / "broken.py", "--device", "cpu", "--svg", tmp_path / "no.svg", "--json")
    assert result.exit_code == 1, result.output
    report = ProfileReport.from_json(json.loads(result.stdout))
    assert report.failure is not None
    assert "power of 2" in report.failure.evidence
    assert report.profile is None
    assert not (tmp_path / "no.svg").exists()
    text = shown(report)
    assert "could not be run" in text
    assert "power of 2" in text
    assert "aten._softmax" in text, "the task's facts are shown all the same"


def test_it_needs_no_more_than_a_gpu_machine_has():
    """torch, triton, rich and typer: no models' clients, no schemas of theirs."""
    absent = "openai", "anthropic", "jinja2", "optuna", "httpx2", "genai_prices"
    code = f"""
import sys
for name in {absent}:
    sys.modules[name] = None
from egg.cli.app import main
sys.argv = ["egg", "profile", {str(SOFTMAX)!r}, "--device", "cpu"]
main()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert "floor on H200" in ended.stdout


def test_every_limiter_and_rung_has_words():
    assert set(MEANINGS) == set(Limiter)
    assert len({rung.sources for rung in Rung}) == len(Rung)


# -- what cannot be done -----------------------------------------------------------------------------


def test_a_task_that_looks_at_its_data_has_no_facts(tmp_path):
    (tmp_path / "branches.py").write_text(LOOKS_AT_VALUES)
    result = egg(tmp_path / "branches.py", "--device", "cpu")
    assert result.exit_code == 2
    assert "no data" in result.stderr
    assert result.stdout == ""


def test_a_kernel_is_looked_at_without_facts_too(tmp_path, softmax, monkeypatch):
    (tmp_path / "branches.py").write_text(LOOKS_AT_VALUES)
    seen = ProfileReport.from_json(softmax[0]).profile
    monkeypatch.setattr(profiling, "_profile", lambda *_: (seen, None))
    result = egg(tmp_path / "branches.py", FUSED, "--device", "cpu", "--target", "h100", "--json")
    assert result.exit_code == 0, result.output
    report = ProfileReport.from_json(json.loads(result.stdout))
    assert "meta tensors" in report.unknown
    assert report.gpu.floor_milliseconds is None
    assert report.diagnosis is not None
    assert report.diagnosis.whole.headroom is None
    text = shown(report)
    assert "no facts: " in text
    assert "the least the task could take is not known" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("absent.py",), "no such file: absent.py"),
        ((SOFTMAX, "absent.py"), "no such file: absent.py"),
        ((SOFTMAX, SOFTMAX), "does not define ModelNew"),
        ((FUSED,), "does not define Model"),
        ((SOFTMAX, FUSED, "--target", "h300"), "unknown GPU"),
        ((SOFTMAX, FUSED, "--device", "gpu"), "unknown device"),
        ((SOFTMAX, FUSED, "--stage", "regrade"), "no counters for a stage 'regrade'"),
        ((SOFTMAX, FUSED, "--precision", "fp12"), "fp12"),
        ((SOFTMAX, "--device", "cpu", "--svg", "/absent/folder/roof.svg"), "cannot write"),
    ],
)
def test_usage_mistakes_are_2(arguments, message):
    result = egg(*arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert result.stdout == ""


def test_a_task_that_does_not_load_is_2_and_json_says_so(tmp_path):
    (tmp_path / "bad.py").write_text(
        LOOKS_AT_VALUES.replace("import torch\n", "import torch\nraise OSError\n", 1)
    )
    result = egg(tmp_path / "bad.py", FUSED, "--device", "cpu", "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"] == "usage"


@pytest.mark.skipif("__import__('torch').cuda.is_available()")
def test_a_gpu_that_is_not_here_is_3():
    result = egg(SOFTMAX, FUSED, "--device", "cuda:7", "--json")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["error"] == "machine"


# -- a measured profile ------------------------------------------------------------------------------


def measured(facts: ProfileReport) -> ProfileReport:
    """As on a machine with counters: an own product, an own reduction without them, a library's kernel."""
    form = Access("x_ptr", False, 80e6, 80e6, 80e6)
    product = KernelWork({"tf32": 34.4e9}, 0.0, 16e6, 0.0, (form,), 64.0)
    rows = KernelWork({}, 0.0, 8e6, 1e6, (form,), 1.0)
    counters = {
        Counter.DRAM_READ_BYTES: 60e6,
        Counter.DRAM_WRITTEN_BYTES: 34e6,
        Counter.DRAM_SHARE: 0.22,
        Counter.L2_SHARE: 0.41,
        Counter.TENSOR_SHARE: 0.63,
        Counter.OCCUPANCY: 0.11,
        Counter.WAVES: 3.88,
    }
    library = {
        Counter.GRID: 264.0,
        Counter.THREADS: 384.0,
        Counter.REGISTERS: 168.0,
        Counter.SHARED_BYTES: 210e3,
    }
    cutlass = "void cutlass::Kernel2<cutlass_80_tensorop_s1688>"
    kernels = (
        KernelProfile("linear_gelu", True, 1, 0.19, 0.21, _resources(product, 98304), counters),
        KernelProfile("sum_rows", True, 4, 0.08, 0.07, _resources(rows, 512, launches=4)),
        KernelProfile(cutlass, False, 1, 0.02, None, None, library),
    )
    refused = Lowered(Rung.COUNTERS, "ERR_NVGPUCTRPERM for one kernel", "ask for the permission")
    profile = Profile("fused", Rung.COUNTERS, "H200", kernels, 0.31, 0.3, 6, (refused,), ("a warning",))
    diagnosis = diagnose(profile, resolve("H200"), floor_milliseconds=facts.gpu.floor_milliseconds)
    return replace(facts, candidate="fused", profile=profile, diagnosis=diagnosis)


def _resources(work: KernelWork, shared: int, launches: int = 1) -> KernelResources:
    return KernelResources("own", (32, 16, 1), 235, 16, shared, 8, 3, 64, 128, launches=launches, work=work)


def test_a_measured_profile_in_words():
    printed = egg(LINEAR, "--json", "--device", "cpu", "--target", "h200").stdout
    report = measured(ProfileReport.from_json(json.loads(printed)))
    assert ProfileReport.from_json(json.loads(json.dumps(report.to_json()))) == report
    text = shown(report)
    assert "0.31 ms measured; 6 launches; no kernel ran in 6% of it" in text
    assert "seen by          counters" in text
    assert "ERR_NVGPUCTRPERM" in text
    assert "warning: a warning" in text
    product, rows, library = (
        [line.split() for line in text.splitlines() if line.startswith(f"{letter}  ")] for letter in "ABC"
    )
    assert product[0][1:6] == ["linear_gelu", "0.19", "ms", "61%", "1"]
    assert product[1][1:] == ["32x16", "8", "235", "16", "B", "96", "KiB", "max", "12%", "registers", "3.88"]
    assert product[2][1:] == ["22%", "41%", "-", "63%", "-", "-", "-", "11%"]
    assert rows[1][6:8] == ["512", "B"]
    assert library[0][-3:] == ["-", "-", "-"], "nothing but its time is known of a library's kernel"
    assert library[1][1:] == ["264", "12", "168", "-", "205", "KiB", "-", "-", "-"]
    assert "(library)" in text
    assert "not drawn, as their work is not known: C void cutlass" in text
    assert "366 FLOP/byte" in text, "bytes as counted, where they were"
