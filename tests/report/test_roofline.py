"""The roofline's pictures: what is drawn where, and that it can be read."""

from __future__ import annotations

import itertools
import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egg.core.facts import Family, GpuFacts, Operation, TensorForm, Workload
from egg.core.profile import Counter, KernelProfile, Profile, Rung
from egg.core.resources import Access, KernelResources, KernelWork
from egg.hardware.gpus import resolve
from egg.report.quantities import factor, milliseconds, per_byte, percent, quantity
from egg.report.roofline import Point, Roof, Roofline, axes_of, height_of, roofline
from egg.report.roofline_svg import FILE, PAGE, Frame, inline, svg
from egg.report.roofline_text import ASCII, UNICODE, key, plot, short

H200 = resolve("H200")
MATRIX = TensorForm("float32", (4096, 4096), 4)
FACTS = GpuFacts("H200", "sm_90", 132, 232448, 65536, 60 << 20, H200.bandwidth, 330e12, 0.42)


def work(*, tensor: float = 0.0, flops: float = 0.0, moved: float = 1e8) -> KernelWork:
    access = (Access("x_ptr", False, moved, moved, moved),) if moved else ()
    return KernelWork({"tf32": tensor} if tensor else {}, 0.0, flops, 0.0, access, 1.0)


def kernel(
    name: str,
    time: float,
    done: KernelWork | None,
    *,
    measured: bool = True,
    launches: int = 1,
    counters=None,
) -> KernelProfile:
    resources = None
    if done is not None:
        resources = KernelResources(name, (128,), 64, 0, 0, 4, 3, 0, 128, launches=launches, work=done)
    times = (time, None) if measured else (None, time)
    return KernelProfile(name, done is not None, launches, *times, resources, counters or {})


def profile(*kernels: KernelProfile) -> Profile:
    total = sum(k.best_milliseconds for k in kernels)
    measured = any(k.milliseconds is not None for k in kernels)
    rung, time = (Rung.TIMES, total) if measured else (Rung.RESOURCES, None)
    return Profile("fused", rung, "H200", kernels, time, total, sum(k.launches for k in kernels))


def drawn(*kernels: KernelProfile, task: Workload | None = None) -> Roofline:
    return roofline(profile(*kernels), H200, FACTS, task)


def product() -> Workload:
    operation = Operation(
        "aten.mm", Family.PRODUCT, (MATRIX, MATRIX), (MATRIX,), 2 * 4096.0**3, 3 * MATRIX.bytes, 1
    )
    return Workload({"a": MATRIX, "b": MATRIX}, {}, {"output": MATRIX}, (operation,), 3 * MATRIX.bytes)


# -- numbers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (quantity(4.8e12, "B/s"), "4.8 TB/s"),
        (quantity(494.7e12, "FLOP/s"), "495 TFLOP/s"),
        (quantity(999.96e9, "B"), "1 TB"),
        (quantity(999.4, "B"), "999 B"),
        (quantity(5.2e18, "FLOP"), "5.2 EFLOP"),
        (quantity(0, "B"), "0 B"),
        (quantity(34.4e9, ""), "34.4 G"),
        (quantity(math.inf, "FLOP/s"), "inf FLOP/s"),
        (per_byte(0.625), "0.625 FLOP/byte"),
        (per_byte(1230.4), "1,230 FLOP/byte"),
        (milliseconds(0.0), "0 ms"),
        (milliseconds(1e-8), "<1 ns"),
        (milliseconds(27.3e-6), "27.3 ns"),
        (milliseconds(0.0021), "2.1 us"),
        (milliseconds(0.0291), "0.0291 ms"),
        (milliseconds(1400), "1.4 s"),
        (percent(0.001), "<1%"),
        (percent(0.0), "0%"),
        (percent(0.998), ">99%"),
        (percent(1.0), "100%"),
        (factor(1.84), "1.8x"),
        (factor(26.4), "26x"),
    ],
)
def test_numbers_are_short(shown, wanted):
    assert shown == wanted


@given(st.floats(1e-3, 1e17))
def test_quantities_stay_near_the_value_and_have_no_exponents(value):
    digits, _, prefix = quantity(value, "").partition(" ")
    assert "e" not in digits
    size = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}[prefix]
    assert math.isclose(float(digits.replace(",", "")) * size, value, rel_tol=6e-3)


# -- what is drawn -----------------------------------------------------------------------------------


def test_a_point_is_its_work_over_its_bytes_and_its_time():
    [point] = drawn(kernel("copy", 0.05, work(flops=2e8))).points
    assert point.intensity == pytest.approx(2.0)
    assert point.rate == pytest.approx(2e8 / 50e-6)
    assert point.bandwidth == pytest.approx(1e8 / 50e-6)
    assert point.of_roof == pytest.approx(1e8 / H200.bandwidth / 50e-6)
    assert point.measured
    assert point.share == 1.0


def test_counted_bytes_come_before_those_of_the_ir():
    counted = {Counter.DRAM_READ_BYTES: 3e8, Counter.DRAM_WRITTEN_BYTES: 1e8}
    [point] = roofline(
        profile(kernel("copy", 0.1, work(flops=4e8), counters=counted)), H200, FACTS, None
    ).points
    assert point.intensity == pytest.approx(1.0)
    half = {Counter.DRAM_READ_BYTES: 3e8}
    [point] = drawn(kernel("copy", 0.1, work(flops=4e8), counters=half)).points
    assert point.intensity == pytest.approx(4.0), "half of the counters is no count"


def test_the_work_of_one_launch_goes_with_the_time_of_one():
    several = kernel("step", 0.4, work(flops=1e8), launches=4)
    [point] = drawn(several).points
    assert point.bandwidth == pytest.approx(1e8 / 100e-6)
    assert point.milliseconds == pytest.approx(0.4)
    longest = kernel("step", 0.4, work(flops=1e8), launches=4, counters={Counter.NANOSECONDS: 250e3})
    [point] = drawn(longest).points
    assert point.bandwidth == pytest.approx(1e8 / 250e-6)


def test_a_product_is_held_to_the_roof_of_its_own_units():
    chart = drawn(kernel("gemm", 1.0, work(tensor=2e11, moved=1e7)))
    assert [roof.name for roof in chart.roofs] == ["fp32 FMA", "tf32"]
    assert chart.points[0].of_roof == pytest.approx(2e11 / 1e-3 / H200.tensor["tf32"])
    plain = drawn(kernel("loop", 1.0, work(flops=2e10, moved=1e7)))
    assert plain.points[0].of_roof == pytest.approx(2e10 / 1e-3 / H200.vector["fp32"])


def test_the_task_stands_where_fusion_would_put_it():
    chart = roofline(None, H200, FACTS, product())
    assert chart.ideal == pytest.approx(2 * 4096**3 / (3 * MATRIX.bytes))
    assert chart.ideal_rate == FACTS.peak_flops
    assert [roof.name for roof in chart.roofs] == ["fp32 FMA", "fp32-grade"]
    assert chart.points == ()


def test_kernels_without_known_work_are_named_and_not_drawn():
    chart = roofline(
        profile(kernel("own", 1.0, work(flops=1e9)), kernel("cutlass", 0.5, None)), H200, FACTS, None
    )
    assert [point.name for point in chart.points] == ["own"]
    assert chart.points[0].share == pytest.approx(2 / 3)
    assert chart.undrawn == ("B cutlass",)
    assert "cutlass" in "\n".join(key(chart))


def test_a_copy_stands_on_the_left_edge_as_far_below_the_roof_as_its_bandwidth_is():
    chart = roofline(
        profile(kernel("copy", 0.05, work()), kernel("add", 0.04, work(flops=1e8))), H200, FACTS, None
    )
    axes, copy = axes_of(chart), chart.points[0]
    assert axes.across(copy.intensity) == 0.0
    below = (height_of(copy, axes) - axes.up(H200.bandwidth * 10**axes.left)) * (axes.top - axes.bottom)
    assert below == pytest.approx(math.log10(copy.bandwidth / H200.bandwidth))
    assert "no arithmetic" in "\n".join(key(chart))


def test_predicted_times_are_said_to_be():
    guessed = drawn(kernel("add", 0.04, work(flops=1e8), measured=False))
    assert not guessed.points[0].measured
    assert key(guessed)[0].endswith(", predicted")
    assert "times predicted, not measured" in svg(guessed)
    assert 'class="kernel predicted"' in svg(guessed)
    seen = drawn(kernel("add", 0.04, work(flops=1e8)))
    assert "predicted" not in "\n".join(key(seen))
    assert 'class="kernel predicted"' not in svg(seen)


# -- any chart ---------------------------------------------------------------------------------------

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=80)


@st.composite
def charts(draw, most: int = 8) -> Roofline:
    count = draw(st.integers(0, most))
    points = []
    for index in range(count):
        intensity = draw(st.one_of(st.just(0.0), st.floats(1e-3, 1e5)))
        bandwidth = draw(st.floats(1e8, 5e12))
        points.append(
            Point(
                letter=chr(65 + index) if index < 26 else "",
                name=draw(NAMES),
                share=1 / count,
                milliseconds=draw(st.floats(1e-4, 1e4)),
                measured=draw(st.booleans()),
                intensity=intensity,
                rate=intensity * bandwidth,
                bandwidth=bandwidth,
                of_roof=draw(st.floats(1e-4, 3.0)),
            )
        )
    roofs = [
        Roof("fp32 FMA", 66.9e12),
        Roof("fp32-grade", 330e12),
        Roof("tf32", 494.7e12),
        Roof("fp16", 989e12),
    ]
    ideal = draw(st.one_of(st.none(), st.floats(1e-3, 1e5)))
    rate = min(ideal * 4.8e12, 330e12) if ideal is not None else None
    kept = draw(st.integers(1, 4))
    return Roofline("H200", draw(NAMES), 4.8e12, tuple(roofs[:kept]), tuple(points), (), ideal, rate)


@settings(max_examples=50, deadline=None)
@given(charts(most=30), st.integers(48, 160), st.sampled_from([ASCII, UNICODE]))
def test_the_text_fits_and_every_kernel_has_its_letter(chart, width, marks):
    text = plot(chart, width, marks=marks)
    body = text.splitlines()
    assert max(map(len, body)) <= width
    inside = "".join(line[14:] for line in body[:-3])
    for roof in chart.roofs:
        inside = inside.replace(roof.name, "").replace(quantity(roof.rate, "FLOP/s"), "")
    inside = inside.replace(quantity(chart.bandwidth, "B/s"), "")
    for point in chart.points:
        assert not point.letter or point.letter in inside
    assert text.isascii() or marks is UNICODE
    if chart.ideal is not None:
        assert marks.ideal in text


TAG = "{http://www.w3.org/2000/svg}"


@settings(max_examples=20, deadline=None)
@given(charts())
def test_the_picture_is_a_small_valid_file_whose_labels_do_not_overlap(chart):
    text = svg(chart)
    assert len(text.encode()) < 30_000
    root = ElementTree.fromstring(text)
    _check(root, chart, FILE)
    _no_label_overlaps(root, FILE)


@settings(max_examples=10, deadline=None)
@given(charts(most=3))
def test_a_page_holds_it_at_two_widths_and_names_what_there_is_room_for(chart):
    for part, frame in zip(inline(chart).split("</svg>"), PAGE, strict=False):
        root = ElementTree.fromstring(part + "</svg>")
        assert root.get("class") == f"roofline {frame.name}"
        _check(root, chart, frame)
        _no_label_overlaps(root, frame)


def _check(root: ElementTree.Element, chart: Roofline, frame: Frame) -> None:
    """Named, and everything drawn lies within the picture."""
    assert root.find(f"{TAG}title") is not None
    assert root.find(f"{TAG}desc") is not None
    for element in root.iter(f"{TAG}text"):
        assert 0 <= float(element.attrib["x"]) <= frame.width
        assert 0 <= float(element.attrib["y"]) <= frame.height
    assert len(root.findall(f"{TAG}circle")) == len(chart.points)
    for circle in root.iter(f"{TAG}circle"):
        assert frame.left <= float(circle.attrib["cx"]) <= frame.width
        assert 0 <= float(circle.attrib["cy"]) <= frame.height


def _no_label_overlaps(root: ElementTree.Element, frame: Frame) -> None:
    boxes = []
    for element in root.iter(f"{TAG}text"):
        x, y = float(element.attrib["x"]), float(element.attrib["y"])
        plain = "transform" not in element.attrib and element.get("class") not in ("title", "quiet")
        if plain and x > frame.left:
            boxes.append(_extent(element, x, y))
    for one, other in itertools.combinations(boxes, 2):
        assert not _overlap(one, other), (one, other)


def _extent(element: ElementTree.Element, x: float, y: float) -> tuple[float, float, float, float]:
    width = len(element.text or "") * 5.2
    left = x - {"end": width, "middle": width / 2}.get(element.get("text-anchor", ""), 0.0)
    return left, y - 9, left + width, y + 2


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def test_many_kernels_make_no_large_file():
    kernels = [kernel(f"kernel_{i}_" + "x" * 200, 1 / (i + 1), work(flops=1e7 * (i + 1))) for i in range(500)]
    chart = drawn(*kernels, task=product())
    text = svg(chart)
    assert len(text.encode()) < 30_000
    assert "the 8 longest are named" in text
    assert len(key(chart)) < 30
    assert "474 shorter kernels" in "\n".join(key(chart))


def test_the_picture_stands_alone_and_knows_both_schemes():
    text = svg(drawn(kernel("add", 0.04, work(flops=1e8)), task=product()))
    assert "prefers-color-scheme:dark" in text
    assert re.findall(r'https?://[^"]+', text) == ["http://www.w3.org/2000/svg"]
    assert "<script" not in text


def test_names_cannot_break_the_picture():
    chart = roofline(
        profile(kernel('</text><script>"&\x00\x1b[31m', 0.04, work(flops=1e8))), H200, FACTS, None
    )
    text = svg(chart)
    ElementTree.fromstring(text)
    assert "<script" not in text
    assert "\x1b" not in text


def test_a_long_name_keeps_its_beginning_and_its_end():
    assert short("a" * 50 + "_128x256", 30).endswith("_128x256")
    assert len(short("a" * 50, 30)) == 30
    assert short("softmax") == "softmax"
