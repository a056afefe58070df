"""The ladder: each way Nsight Compute can fail leaves the run one rung lower, and the profile says so.

The tool is a stand-in, but a real process in the real confinement; the times are made up.
"""

from __future__ import annotations

import contextlib
import json
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egg.core.codec import to_json
from egg.core.profile import Counter, Profile, Rung
from egg.evaluator.process.confined import Cell
from egg.evaluator.process.sandbox import Limits
from egg.evaluator.profiling import merge, reply
from egg.evaluator.profiling.counters import Unreached, read_csv
from egg.evaluator.profiling.ladder import Deadlines, Terms, climb, count
from egg.evaluator.profiling.times import Activity, Garbled, activities, typical_call
from egg.hardware.gpus import resolve
from tests.leftovers import Sandbox

LIMITS = Limits(address_space=None, resident=1 << 30)
TABLE = (Path(__file__).parent / "data" / "ncu.csv").read_text()
ADDITION = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctorOnSelf_add<float>, "
    "std::array<char*, 2ul> >(int, at::native::CUDAFunctorOnSelf_add<float>, std::array<char*, 2ul>)"
)
TIMES = reply.Times(
    kernels=(
        reply.TimedKernel("strided", True, 1, 98.0, (4096, 1, 1), (128, 1, 1), 18, 0),
        reply.TimedKernel("mm", True, 1, 34.0, (16, 16, 1), (256, 1, 1), 116, 98304),
        reply.TimedKernel(ADDITION, False, 1, 33.0, (4096, 1, 1), (128, 1, 1), 32, 0),
        reply.TimedKernel("Memset (Device)", False, 1, 1.0, (), (), 0, 0),
    ),
    sequence=(
        reply.Launched(3, 1.0), reply.Launched(1, 34.0), reply.Launched(0, 98.0), reply.Launched(2, 33.0)
    ),
    span_microseconds=180.0,
    call_microseconds=175.0,
    streams=1,
    resources=(),
    unseen="",
    warnings=(),
)  # fmt: skip


class Stand:
    """Rungs whose times are given and whose tool is whatever stands at ``ncu``."""

    def __init__(
        self, cell: Cell, ncu: Path, times: reply.Times | None = TIMES, seconds: float = 20.0
    ) -> None:
        self._cell, self._times = cell, times
        self._terms = Terms(ncu=ncu, deadlines=Deadlines(counters=seconds))

    def times(self) -> Profile:
        if self._times is None:
            raise Unreached("there is no GPU here")
        return merge.by_times("kernel", "NVIDIA H200", resolve("H200"), self._times)

    def counters(self, seen: Profile) -> Profile:
        assert self._times is not None
        return count(self._cell, ["python", "program"], seen, self._times, "sm_90", self._terms)

    def resources(self) -> Profile:
        raise Unreached("nothing could be compiled")

    def model(self) -> Profile:
        return Profile("kernel", Rung.MODEL, "H200", (), None, None, 0)


@pytest.fixture
def cell(sandbox: Sandbox) -> Iterator[Cell]:
    """A cell, and the certainty that nothing of it is left."""
    with Cell(LIMITS) as one:
        yield one
    assert sandbox.settles(lambda: not sandbox.processes()), "processes were left behind"
    assert sandbox.folders() == []


@pytest.fixture
def tool(cell: Cell) -> Iterator[Path]:
    """Where a stand-in for Nsight Compute is put."""
    folder = cell.folder.parent / "tool"
    folder.mkdir(mode=0o755)
    yield folder / "ncu"
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def install(tool: Path, body: str) -> Path:
    """A tool in Python: ``said`` holds its arguments, ``log(text)`` writes its log."""
    tool.write_text(
        f"#!{sys.executable}\nimport os, sys, time\nsaid = sys.argv[1:]\n"
        "def log(text): open(said[said.index('--log-file') + 1], 'w').write(text)\n" + body
    )
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return tool


def lowered(profile: Profile) -> str:
    """Why there are no counters; the profile must stand one rung lower, and be whole there."""
    assert profile.rung is Rung.TIMES
    assert profile.milliseconds == pytest.approx(0.175)
    assert [k.name for k in profile.kernels] == [k.name for k in TIMES.kernels]
    assert not any(k.counters for k in profile.kernels)
    (missed,) = profile.lowered
    assert missed.rung is Rung.COUNTERS
    assert Profile.from_json(json.loads(json.dumps(profile.to_json()))) == profile
    return f"{missed.reason} [{missed.hint}]"


def test_absent(cell: Cell, tool: Path) -> None:
    assert "not installed" in lowered(climb(Stand(cell, tool)))


def test_switched_off(cell: Cell, tool: Path) -> None:
    install(tool, "raise SystemExit(open('ran', 'w').write('x'))")
    assert "switched off" in lowered(climb(Stand(cell, tool), counters=False))
    assert not (cell.folder / "ran").exists()


def test_refused(cell: Cell, tool: Path) -> None:
    install(tool, "log('==ERROR== ERR_NVGPUCTRPERM - The user does not have permission'); sys.exit(1)")
    assert "NVreg_RestrictProfilingToAdminUsers=0" in lowered(climb(Stand(cell, tool)))


def test_hanging(cell: Cell, tool: Path, sandbox: Sandbox) -> None:
    """With children of its own, in sessions of their own: all of them are gone afterwards."""
    install(
        tool,
        "import subprocess\n"
        "for _ in range(3): subprocess.Popen(['sleep', '300'], start_new_session=True)\n"
        "time.sleep(300)",
    )
    assert "within 1.5 s" in lowered(climb(Stand(cell, tool, seconds=1.5)))
    assert sandbox.settles(lambda: not sandbox.confined())


def test_waiting_for_a_pipe_it_never_reads(cell: Cell, tool: Path) -> None:
    """A log that is a pipe must not make us wait for who writes it."""
    install(tool, "os.mkfifo(said[said.index('--log-file') + 1])")
    assert "not a table" in lowered(climb(Stand(cell, tool)))


@pytest.mark.parametrize(
    "body",
    [
        "os.write(1, os.urandom(200_000)); log('\\x00\\xff' * 1000)",
        "print('hello')",
        'log(\'"Kernel Name"\\n""\\n"x"\')',
        "os.symlink('/etc/passwd', said[said.index('--log-file') + 1])",
        f"log({TABLE[:-150]!r})",
    ],
    ids=["noise", "talk", "half a table", "a link", "a table cut off"],
)
def test_printing_garbage(cell: Cell, tool: Path, body: str) -> None:
    install(tool, body)
    assert "not a table of counters" in lowered(climb(Stand(cell, tool)))


def test_failing(cell: Cell, tool: Path) -> None:
    install(
        tool, f"log({TABLE!r}); print('==ERROR== The application returned an error code (3).'); sys.exit(3)"
    )
    assert "ended with 3: The application returned an error code (3)." in lowered(climb(Stand(cell, tool)))


def test_crashing(cell: Cell, tool: Path) -> None:
    install(tool, "os.kill(os.getpid(), 11)")
    assert "ended with -11" in lowered(climb(Stand(cell, tool)))


def test_not_a_program(cell: Cell, tool: Path) -> None:
    tool.write_text("\x7fELF nothing")
    tool.chmod(0o755)
    assert "could not be started" in lowered(climb(Stand(cell, tool)))


def test_nothing_profiled(cell: Cell, tool: Path) -> None:
    install(tool, "log('==WARNING== No kernels were profiled.')")
    assert "none of the kernels" in lowered(climb(Stand(cell, tool)))


def test_other_kernels_than_those_timed(cell: Cell, tool: Path) -> None:
    table = (
        TABLE.replace('"mm"', '"a"').replace('"strided"', '"b"').replace("vectorized_elementwise_kernel", "c")
    )
    install(tool, f"log({table!r})")
    assert "nothing of the kernels that were timed" in lowered(climb(Stand(cell, tool)))


def test_counters(cell: Cell, tool: Path) -> None:
    install(tool, f"print('talk'); log({TABLE!r}); open('said', 'w').write(' '.join(said))")
    profile = climb(Stand(cell, tool))
    assert profile.rung is Rung.COUNTERS
    assert profile.lowered == ()
    strided, product, addition, memset = profile.kernels
    assert strided.counters[Counter.NANOSECONDS] == 98080
    assert product.counters[Counter.TENSOR_INSTRUCTIONS] == 262144
    assert addition.counters[Counter.NANOSECONDS] == 9056, "the tool writes its name in another way"
    assert memset.counters == {}
    assert profile.milliseconds == pytest.approx(0.175)
    answer = cell.take("said", 1 << 20).decode()
    assert "regex:^(strided|mm|vectorized_elementwise_kernel)$ --launch-count 3" in answer
    assert answer.endswith("python program")


def test_an_unknown_metric_does_not_lose_the_others(cell: Cell, tool: Path) -> None:
    install(
        tool,
        "asked = said[said.index('--metrics') + 1].split(',')\n"
        "if 'lts__t_bytes.sum' in asked:\n"
        "    log('==ERROR== Failed to find metric lts__t_bytes.sum')\n    sys.exit(1)\n"
        f"log({TABLE.replace('lts__t_bytes.sum', 'some__thing.sum')!r})",
    )
    profile = climb(Stand(cell, tool))
    assert profile.rung is Rung.COUNTERS
    assert Counter.L2_BYTES not in profile.kernels[0].counters
    assert Counter.L2_SHARE in profile.kernels[0].counters
    assert any("lts__t_bytes.sum" in warning for warning in profile.warnings)


def test_unknown_metrics_are_tried_once_more_and_no_oftener(cell: Cell, tool: Path) -> None:
    install(
        tool,
        "first = said[said.index('--metrics') + 1].split(',')[0]\n"
        "open('tries', 'a').write('x'); log(f'==ERROR== Failed to find metric {first}'); sys.exit(1)",
    )
    assert "Failed to find metric" in lowered(climb(Stand(cell, tool)))
    assert cell.take("tries", 10) == b"xx"


def test_below_times_every_rung_is_named(cell: Cell, tool: Path) -> None:
    profile = climb(Stand(cell, tool, times=None))
    assert profile.rung is Rung.MODEL
    assert [missed.rung for missed in profile.lowered] == [Rung.COUNTERS, Rung.TIMES, Rung.RESOURCES]
    assert profile.lowered[1].reason == "there is no GPU here"
    assert profile.lowered[2].reason == "nothing could be compiled"


# The timeline


def event(name: str, start: float, duration: float, correlation: int, **more: object) -> dict[str, object]:
    """One kernel as PyTorch's profiler exports it."""
    arguments = {
        "device": 0, "context": 1, "stream": 7, "correlation": correlation, "registers per thread": 32,
        "shared memory": 0, "grid": [8, 1, 1], "block": [128, 1, 1], **more,
    }  # fmt: skip
    return {"ph": "X", "cat": "kernel", "name": name, "ts": start, "dur": duration, "args": arguments}


def flush(start: float, correlation: int) -> dict[str, object]:
    return event("fill", start, 60.0, correlation, grid=[65536, 1, 1])


def test_a_call_is_what_lies_between_two_flushes() -> None:
    events = [
        {"ph": "M", "name": "process_name"},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 0, "dur": 5, "args": {}},
        *(
            one
            for call in range(3)
            for one in (
                flush(1000.0 * call, 10 * call),
                event("a", 1000.0 * call + 60, 10.0 + call, 10 * call + 1),
                event("b", 1000.0 * call + 90 + call, 20.0, 10 * call + 3),
                event("side", 1000.0 * call + 30, 5.0, 10 * call + 2, stream=8),
            )
        ),
    ]
    call = typical_call(activities({"traceEvents": events}), 3)
    assert [(a.name, a.microseconds) for a in call.activities] == [("a", 11.0), ("side", 5.0), ("b", 20.0)]
    assert call.microseconds == pytest.approx(111.0 - 30.0), "from the first start to the last end"
    assert {a.stream for a in call.activities} == {7, 8}


def test_calls_that_differ_are_told_by_the_middle_one() -> None:
    events = [flush(0, 1), event("a", 100, 1.0, 2), flush(1000, 3), flush(2000, 4), event("b", 2100, 9.0, 5)]
    call = typical_call(activities({"traceEvents": events}), 3)
    assert [a.name for a in call.activities] == ["a"]
    assert call.microseconds == 1.0


def test_a_call_that_launches_nothing() -> None:
    call = typical_call(activities({"traceEvents": [flush(0, 1), flush(100, 2)]}), 2)
    assert (call.activities, call.microseconds) == ((), 0.0)


@pytest.mark.parametrize("events", [[], [flush(0, 1)], [flush(0, 1), flush(9, 2), flush(99, 3)]])
def test_another_number_of_calls_is_garbled(events: list[dict[str, object]]) -> None:
    with pytest.raises(Garbled):
        typical_call(activities({"traceEvents": events}), 2)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
DAMAGE = st.sampled_from(["name", "ts", "dur", "args", "cat", "grid", "block", "correlation", "stream"])


@given(DAMAGE, JSON)
def test_a_damaged_trace_is_read_or_garbled(key: str, value: object) -> None:
    broken = event("a", 1.0, 2.0, 3)
    target = broken if key in broken else broken["args"]
    assert isinstance(target, dict)
    target[key] = value
    try:
        found = activities({"traceEvents": [flush(0, 1), broken, value]})
    except Garbled:
        return
    assert all(isinstance(a, Activity) and 0 <= a.microseconds < 1e18 for a in found)


@given(JSON)
def test_anything_for_a_trace(value: object) -> None:
    with contextlib.suppress(Garbled):
        assert activities(value) == []


# The reply of the profiled process


def test_a_reply_comes_back_as_it_was() -> None:
    answer = reply.Reply(times=TIMES)
    assert reply.read(json.dumps(to_json(answer)).encode()) == answer


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"[]", b"null", b"{}", b'{"fault": null}', b"[" * 100_000,
        b'{"fault": {"reason": 1, "evidence": "", "party": ""}, "times": null, "compiled": null}',
    ],
)  # fmt: skip
def test_what_is_no_reply_is_garbled(text: bytes) -> None:
    with pytest.raises(Garbled):
        reply.read(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("175.0", "-1"), ("175.0", "NaN"), ("175.0", "Infinity"), ("175.0", '"175"'), ("175.0", "true"),
        ("175.0", "1" + "0" * 40), ('"streams": 1', '"streams": 1.5'),
        ('"streams": 1', '"streams": 1, "x": 2'), ("[4096, 1, 1]", "4096"),
        ("[4096, 1, 1]", "[4096, 1, 1, 1]"), ("[4096, 1, 1]", f"[{1 << 40}, 1, 1]"), ('"mm"', "7"),
        ('"own": true', '"own": 1'),
    ],
)  # fmt: skip
def test_a_forged_reply_is_garbled(old: str, new: str) -> None:
    text = json.dumps(to_json(reply.Reply(times=TIMES)))
    assert old in text
    with pytest.raises(Garbled):
        reply.read(text.replace(old, new).encode())


@given(JSON)
def test_anything_for_a_reply(value: object) -> None:
    with pytest.raises(Garbled):
        reply.read(json.dumps(value).encode())


@given(st.data())
def test_a_reply_damaged_anywhere_is_read_or_garbled(data: st.DataObject) -> None:
    whole = to_json(reply.Reply(times=TIMES))
    place: object = whole
    while isinstance(place, dict | list) and place:
        keys = list(place) if isinstance(place, dict) else range(len(place))
        key = data.draw(st.sampled_from(keys))
        if data.draw(st.booleans()) or not isinstance(place[key], dict | list):  # type: ignore[index]
            place[key] = data.draw(JSON)  # type: ignore[index]
            break
        place = place[key]  # type: ignore[index]
    try:
        read = reply.read(json.dumps(whole).encode())
    except Garbled:
        return
    if read.times is not None:
        seen = merge.by_times("k", "H200", resolve("H200"), read.times)
        wanted = merge.hottest(read.times)
        with contextlib.suppress(Unreached):
            merge.with_counters(seen, read.times, read_csv(TABLE), wanted, ())
