"""Skills as folders: loaded, overridden, and refused with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from egg.core.facts import Family
from egg.core.stage import Category, Stage
from egg.engine.stages import SEARCH
from egg.hardware.gpus import resolve
from egg.knowledge.catalogue import built_in_folder, load
from egg.knowledge.check import check, examine
from egg.knowledge.frontmatter import read
from egg.knowledge.skill import (
    BUILT_IN,
    CATEGORIES,
    Catalogue,
    Gain,
    Hardware,
    SkillError,
    SkillFile,
    SkillStage,
)

KEYS = {
    "name": "split-k",
    "description": "Several programs share the sum of one tile.",
}
METADATA = {
    "stage": "mapping",
    "categories": "split_work",
    "families": "product, convolution",
    "hardware": "sm_80+, amd",
    "gate": "has_product and deep_product and programs_per_sm < 2",
    "veto": "uses_split_k",
    "gain": "1.2-3",
}
BODY = "## When\nFew tiles.\n\n## How\nSplit.\n\n## Expected\nTwice.\n\n## Risks\nOrder of sums.\n"
ASSET = "class Model: ...\nclass ModelNew: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"


def skill(
    root: Path,
    called: str = "split-k",
    *,
    metadata: dict[str, str | None] | None = None,
    body: str = BODY,
    asset: str = "",
    **keys: str | None,
) -> Path:
    """A folder with a sound skill, except for what is asked for; ``None`` leaves a key out."""
    folder = root / called
    (folder / "assets").mkdir(parents=True)
    own: dict[str, str | None] = {**KEYS, "name": called, **keys}
    inner: dict[str, str | None] = {**METADATA, **(metadata or {})}
    lines = ["---", *(f"{k}: {v}" for k, v in own.items() if v is not None), "metadata:"]
    lines += [f"  {k}: {v}" for k, v in inner.items() if v is not None]
    (folder / "SKILL.md").write_text("\n".join([*lines, "---", body]))
    if asset:
        (folder / "assets" / "pattern.py").write_text(asset)
    return folder


def faults(folder: Path) -> list[tuple[str, int, str]]:
    found = check(folder)
    assert bool(found) is (examine(folder, "here").skill is None), "loaded exactly where nothing is wrong"
    return [(problem.file.name, problem.line, problem.message) for problem in found]


def line_of(folder: Path, start: str) -> int:
    lines = (folder / "SKILL.md").read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if line.strip().startswith(start))


# -- a sound one --------------------------------------------------------------------------------


def test_a_sound_skill_is_read_in_full(tmp_path):
    folder = skill(tmp_path, asset=ASSET)
    assert check(tmp_path) == ()
    assert check(folder) == ()
    found = load([tmp_path], built_in=False)["split-k"]
    assert found == examine(folder, str(tmp_path)).skill
    assert found.description == KEYS["description"]
    assert found.stages == (SkillStage.MAPPING,)
    assert found.categories == (Category.SPLIT_WORK,)
    assert found.families == (Family.PRODUCT, Family.CONVOLUTION)
    assert found.hardware == (Hardware("sm_80+"), Hardware("amd"))
    assert found.gate.names == {"has_product", "deep_product", "programs_per_sm"}
    assert found.veto is not None
    assert found.veto.text == "uses_split_k"
    assert found.gain == Gain(1.2, 3.0)
    assert found.gain.expected == pytest.approx(3.6**0.5)
    assert (found.when, found.how, found.expected, found.risks) == (
        "Few tiles.",
        "Split.",
        "Twice.",
        "Order of sums.",
    )
    assert found.body.startswith("## When\n\nFew tiles.\n\n## How\n\nSplit.")
    assert found.assets == (folder / "assets" / "pattern.py",)
    assert (found.path, found.origin, found.overrides) == (folder / "SKILL.md", str(tmp_path), ())
    assert found.serves(Stage.MAPPING)
    assert not found.serves(Stage.TILING)
    assert not found.debugs


def test_a_debugging_skill_has_a_signature_and_needs_no_gain(tmp_path):
    metadata = {
        "stage": "debugging",
        "categories": None,
        "gain": None,
        "gate": "true",
        "signature": "build.compile, correctness",
    }
    folder = skill(tmp_path, metadata=metadata)
    assert faults(folder) == []
    found = load([folder], built_in=False)["split-k"]
    assert found.debugs
    assert found.gain == Gain(1, 1)
    assert found.mends("build.compile")
    assert found.mends("correctness.error")
    assert not found.mends("build.import")
    assert not found.mends("correctnesses")


def test_a_skill_for_several_stages_and_everything(tmp_path):
    metadata = {
        "stage": "seed, structure, memory",
        "categories": "operator_fusion, data_layout, redundant_traffic",
        "families": "any",
        "hardware": None,
        "veto": None,
        "author": "us",
        "version": "1.0",
    }
    assert faults(skill(tmp_path, metadata=metadata, license="Apache-2.0")) == []
    found = load([tmp_path], built_in=False)["split-k"]
    assert (found.families, found.hardware, found.veto) == ((), (), None)
    assert found.fits(resolve("T4"))


@pytest.mark.parametrize(
    ("hardware", "gpu", "fits"),
    [
        ("nvidia", "H200", True),
        ("nvidia", "MI300X", False),
        ("amd", "MI300X", True),
        ("sm_80+", "A100", True),
        ("sm_80+", "B200", True),
        ("sm_80+", "T4", False),
        ("sm_80+", "MI300X", False),
        ("sm_90", "H200", True),
        ("sm_90", "B200", False),
        ("gfx942", "MI300X", True),
        ("gfx942", "MI250X", False),
    ],
)
def test_which_hardware_fits(hardware, gpu, fits):
    assert Hardware(hardware).names(resolve(gpu).vendor, resolve(gpu).arch) is fits


# -- users' folders -----------------------------------------------------------------------------


def test_later_folders_override_earlier_ones_by_name(tmp_path):
    skill(tmp_path / "one", description="First.")
    skill(tmp_path / "one", "vector-width", description="Kept.")
    skill(tmp_path / "two", description="Second.")
    skill(tmp_path / "three", description="Third.")
    skill(tmp_path / "three", "our-rule", description="New.")
    found = load([tmp_path / "one", tmp_path / "two", tmp_path / "three"], built_in=False)
    assert [s.name for s in found] == ["our-rule", "split-k", "vector-width"]
    assert found["split-k"].description == "Third."
    assert found["split-k"].origin == str(tmp_path / "three")
    assert found["split-k"].overrides == tuple(tmp_path / n / "split-k" / "SKILL.md" for n in ("one", "two"))
    assert found["vector-width"].overrides == ()
    assert len(found) == 3
    assert "our-rule" in found
    assert [s.name for s in found.of(Stage.MAPPING)] == ["our-rule", "split-k", "vector-width"]
    assert found.of(Stage.TILING) == ()


def test_the_packages_own_come_first(tmp_path, monkeypatch):
    skill(tmp_path / "package")
    skill(tmp_path / "ours", description="Ours.")
    monkeypatch.setattr("egg.knowledge.catalogue.built_in_folder", lambda: tmp_path / "package")
    assert load()["split-k"].origin == BUILT_IN
    found = load([tmp_path / "ours", tmp_path / "ours"])
    assert found.folders == (tmp_path / "package", tmp_path / "ours")
    assert (found["split-k"].description, found["split-k"].origin) == ("Ours.", str(tmp_path / "ours"))
    assert found["split-k"].overrides == (tmp_path / "package" / "split-k" / "SKILL.md",)


def test_one_folder_may_be_one_skill(tmp_path):
    folder = skill(tmp_path)
    assert [s.name for s in load([folder], built_in=False)] == ["split-k"]


def test_the_packages_own_skills_are_package_data():
    assert built_in_folder().name == "skills"
    assert built_in_folder().parent.name == "knowledge"


def test_a_name_that_nothing_has():
    with pytest.raises(SkillError, match="no skill is called 'nothing'"):
        Catalogue({})["nothing"]


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("stage", "mappin", "stage: unknown 'mappin': did you mean mapping?"),
        ("stage", "regrade", "stage: unknown 'regrade'"),
        ("stage", "mapping, mapping", "mapping stands there twice"),
        ("stage", "mapping,", "a comma too many"),
        ("categories", "split_wrk", "categories: unknown 'split_wrk': did you mean split_work?"),
        ("categories", "tile_shape", "categories: tile_shape is none of mapping"),
        ("categories", "split_work, persistence, warp_count", "one or two"),
        ("families", "prodct", "families: unknown 'prodct': did you mean product?"),
        ("families", "any, product", "families: any stands alone"),
        ("hardware", "sm90", "hardware: 'sm90' names no hardware"),
        ("hardware", "sm_09", "names no hardware"),
        ("hardware", "nvidia, intel", "hardware: 'intel' names no hardware"),
        ("hardware", "gfx942+", "names no hardware"),
        ("gate", "has_prodct", "gate: column 1: unknown name has_prodct (did you mean has_product"),
        ("gate", "has_product and dtype > 3", "gate: column 17: a word (dtype) compared with a number (3)"),
        ("gate", "__import__('os')", "gate: column 1: a condition cannot have this (call)"),
        ("gate", "limiter == 'drma'", "gate: column 12: limiter is never drma"),
        ("veto", "uses_splitk", "veto: column 1: unknown name uses_splitk (did you mean uses_split_k"),
        ("veto", "rows", "veto: column 1: rows is no truth by itself"),
        ("gain", "3", "gain: a range of factors"),
        ("gain", "much", "gain: a range of factors"),
        ("gain", "0.5-2", "gain: a gain is a range from 1 up, not 0.5-2"),
        ("gain", "3-2", "gain: a gain is a range from 1 up, not 3-2"),
        ("gain", "1-1e9", "gain: a range of factors"),
        ("signature", "build.compile", "only a debugging skill"),
        ("categoris", "split_work", "unknown key categoris in metadata: did you mean categories?"),
        ("colour", "red", "unknown key colour in metadata; known are stage, "),
    ],
)
def test_metadata_that_is_refused(tmp_path, key, value, says):
    folder = skill(tmp_path, metadata={key: value})
    found = faults(folder)
    assert [(file, line) for file, line, message in found if says in message] == [
        ("SKILL.md", line_of(folder, f"{key}:"))
    ], found


@pytest.mark.parametrize("key", ["stage", "categories", "gate", "gain"])
def test_metadata_that_is_missing(tmp_path, key):
    folder = skill(tmp_path, metadata={key: None})
    closing = read(folder / "SKILL.md").closed
    assert any(line == closing and key in message for _, line, message in faults(folder))


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({"stage": "debugging", "signature": "build.compile"}, "a debugging skill has none"),
        ({"stage": "debugging", "categories": None}, "signature is missing in metadata"),
        ({"stage": "debugging", "categories": None, "signature": "Build failed"}, "is no reason"),
        ({"stage": "debugging", "categories": None, "signature": "bild.compile"}, "did you mean build?"),
        ({"stage": "mapping, tiling"}, "categories: none for tiling, which has tile_shape"),
    ],
)
def test_metadata_that_does_not_go_together(tmp_path, metadata, says):
    assert any(says in message for _, _, message in faults(skill(tmp_path, metadata=metadata)))


@pytest.mark.parametrize(
    ("keys", "line", "says"),
    [
        ({"name": "split_k"}, 2, "lower-case words joined by hyphens"),
        ({"name": "stream-k"}, 2, "name is stream-k, but its folder is split-k"),
        ({"name": None}, None, "name is missing"),
        ({"description": None}, None, "description is missing"),
        ({"description": "x" * 201}, 3, "description has 201 characters, 200 are allowed"),
        ({"description": "What: and why"}, 3, "must be quoted"),
        ({"gate": "true"}, 4, "gate belongs below metadata, indented"),
        ({"colour": "red"}, 4, "unknown key colour"),
    ],
)
def test_keys_that_are_refused(tmp_path, keys, line, says):
    folder = skill(tmp_path, metadata=dict.fromkeys(["gate"]) if "gate" in keys else None, **keys)
    line = read(folder / "SKILL.md").closed if line is None else line
    assert [(at, True) for _, at, message in faults(folder) if says in message] == [(line, True)]


def test_a_fault_is_told_once(tmp_path):
    assert len(faults(skill(tmp_path, description="What: and why"))) == 1
    assert len(faults(skill(tmp_path / "b", metadata={"gate": "[x]"}))) == 1
    assert len(faults(skill(tmp_path / "c", metadata={"gate": '""'}))) == 1


@pytest.mark.parametrize(
    ("body", "start", "says"),
    [
        (
            BODY.replace("## Risks", "## Dangers"),
            "## Dangers",
            "'Dangers' is none of When, How, Expected, Risks",
        ),
        (BODY.replace("## Risks", "## Dangers"), None, "section Risks is missing"),
        (BODY.replace("Split.", ""), "## How", "section How is empty"),
        (BODY + "## When\nAgain.\n", None, "second time"),
        (
            "## How\nx\n## When\nx\n## Expected\nx\n## Risks\nx\n",
            "## How",
            "section How stands where When should",
        ),
        ("", None, "section When is missing"),
        (BODY + "```\n", "```", "never ends"),
    ],
)
def test_sections_that_are_refused(tmp_path, body, start, says):
    folder = skill(tmp_path, body=body)
    found = [line for _, line, message in faults(folder) if says in message]
    assert len(found) == 1
    if start:
        assert found == [line_of(folder, start)]


@pytest.mark.parametrize(
    ("asset", "line", "says"),
    [
        (ASSET.replace("class ModelNew", "class Other"), 1, "class ModelNew is missing"),
        (ASSET.replace("class Model:", "class Models:"), 1, "class Model is missing"),
        (ASSET.replace("def get_inputs", "def inputs"), 1, "get_inputs() is missing"),
        (ASSET.replace("def get_init_inputs", "def init"), 1, "get_init_inputs() is missing"),
        (ASSET + "def (\n", 5, "no Python"),
        (ASSET + "x = '\x00'\n", 1, "null bytes"),
        (ASSET + "def f():\n    import egg.core\n", 6, "imports egg"),
        (ASSET + "from egg import x\n", 5, "imports egg"),
        ("x = " + "(" * 3000 + ")" * 3000, 1, ""),
    ],
)
def test_assets_that_are_refused(tmp_path, asset, line, says):
    folder = skill(tmp_path, asset=asset)
    found = [entry for entry in faults(folder) if entry[0] == "pattern.py"]
    assert any(at == line and says in message for _, at, message in found), found


def test_an_asset_that_is_no_utf8(tmp_path):
    """Python reads other encodings where a file names one; whoever runs the pattern does not."""
    folder = skill(tmp_path, asset=ASSET)
    (folder / "assets" / "pattern.py").write_bytes(b"# coding: latin-1\n# \xe9\n" + ASSET.encode())
    assert any(name == "pattern.py" and "cannot be read" in message for name, _, message in faults(folder))


def test_an_asset_is_read_and_never_run(tmp_path):
    mark = tmp_path / "ran"
    asset = ASSET + f"open({str(mark)!r}, 'w')\n"
    assert faults(skill(tmp_path / "skills", asset=asset)) == []
    assert not mark.exists()


def test_folders_that_are_refused(tmp_path):
    assert "no folder of skills" in check(tmp_path / "nowhere")[0].message
    with pytest.raises(SkillError, match="no folder of skills"):
        load([tmp_path / "nowhere"], built_in=False)
    (tmp_path / "skills" / "empty").mkdir(parents=True)
    (tmp_path / "skills" / ".hidden").mkdir()
    (tmp_path / "skills" / "__pycache__").mkdir()
    (tmp_path / "skills" / "README.md").write_text("ours")
    [problem] = check(tmp_path / "skills")
    assert (problem.file.name, problem.message) == ("empty", "a folder without a SKILL.md")


def test_two_skills_of_one_name(tmp_path):
    skill(tmp_path)
    skill(tmp_path, "split-k-again", name="split-k")
    [problem] = check(tmp_path)
    assert problem.message.startswith("name is split-k, but its folder is split-k-again")


def test_a_load_names_every_fault_with_file_and_line(tmp_path):
    folder = skill(tmp_path, metadata={"gate": "rowz > 1", "gain": "2"})
    skill(tmp_path, "fine")
    with pytest.raises(SkillError) as caught:
        load([tmp_path], built_in=False)
    file = folder / "SKILL.md"
    assert f"{file}:{line_of(folder, 'gate:')}: gate: column 1: unknown name rowz" in caught.value.message
    assert f"{file}:{line_of(folder, 'gain:')}: gain: " in caught.value.message
    assert caught.value.message.startswith("2 faults in skills:")
    assert caught.value.exit_code == 2


def test_a_catalogue_can_be_checked_again(tmp_path):
    folder = skill(tmp_path)
    found = load([tmp_path], built_in=False)
    assert check(found) == ()
    (folder / "SKILL.md").write_text("---\n")
    assert [problem.line for problem in check(found)] == [1]
    assert check([tmp_path, tmp_path]) == check(tmp_path)


def test_faults_beyond_a_handful_are_counted(tmp_path):
    for number in range(12):
        skill(tmp_path, f"skill-{number}", metadata={"gain": "2"})
    with pytest.raises(SkillError, match="and 4 more"):
        load([tmp_path], built_in=False)


def test_stages_and_categories_are_those_of_the_search():
    for row in SEARCH:
        stage = row.assignment.stage
        if stage is not Stage.SEED:
            assert CATEGORIES[SkillStage(stage.value)] == row.assignment.categories
    assert {own.value for own in SkillStage} == {row.assignment.stage.value for row in SEARCH} | {"debugging"}


def test_the_packages_own_skills_are_sound():
    found = load()
    assert check(found) == ()
    assert all(isinstance(own, SkillFile) and own.origin == BUILT_IN for own in found)
