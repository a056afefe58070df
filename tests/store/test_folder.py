"""The folder of the store: counts, states, damage, other versions, and many processes at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from egg.core.errors import MachineError, UsageError
from egg.core.policy import Precision
from egg.core.source import content_sha256
from egg.store import Claim, Entry, Policy, Recorded, Rejected, Seen, Store, Tuned, store_folder
from egg.store.entries import Damaged

CLAIM = Claim(
    graph="%0 = placeholder\n%1 = torch.relu(%0)\noutput (%1,)",
    inputs=("input float32 [4, 8] [8, 1]",),
    gpu="NVIDIA H200",
    torch="2.11.0",
    triton="3.6.0",
    egg="0.1.0",
)
TASK = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
KERNEL = "class ModelNew: ...\n"
TUNED = Tuned(content_sha256(KERNEL), {})

WRITER = """
import sys
from pathlib import Path
from egg.store import Seen, Store, Tuned
from tests.store.test_folder import CLAIM, KERNEL, TASK, TUNED, warn
store = Store(Path(sys.argv[1]), warn)
for turn in range(int(sys.argv[2])):
    store.record(CLAIM, TASK, Seen(1, 2, 100))
    store.tuned(CLAIM.key, KERNEL, TUNED)
    assert store.kernel_path(store.find(CLAIM)) is not None
"""


def warn(text: str) -> None:
    raise AssertionError(f"nothing is wrong, and yet: {text}")


@pytest.fixture
def words() -> list[str]:
    return []


@pytest.fixture
def store(tmp_path: Path, words: list[str]) -> Store:
    return Store(tmp_path / "store", words.append)


@pytest.fixture
def tuned(store: Store) -> Entry:
    store.record(CLAIM, TASK, Seen(1, 0, 64))
    store.tuned(CLAIM.key, KERNEL, TUNED)
    return store.named(CLAIM.key)


def test_reading_makes_nothing(store: Store):
    assert store.find(CLAIM) is None
    assert store.entries() == ()
    assert not store.folder.exists()


def test_a_graph_is_recorded_once_and_counted(store: Store):
    store.record(CLAIM, TASK, Seen(1, 0, 64))
    store.record(CLAIM, TASK, Seen(1, 0, 64))
    store.count(CLAIM.key, Seen(0, 40))
    (entry,) = store.entries()
    assert entry == Entry(CLAIM, TASK, Seen(2, 40, 64), Recorded())
    assert entry.seen.weight == 40 * 64


def test_counting_what_was_removed_does_nothing(store: Store):
    store.count(CLAIM.key, Seen(0, 1))
    assert store.entries() == ()


def test_the_heaviest_come_first(store: Store):
    light = replace(CLAIM, graph="light")
    store.record(light, TASK, Seen(9, 9, 10))
    store.record(CLAIM, TASK, Seen(1, 1, 1000))
    assert [entry.claim for entry in store.entries()] == [CLAIM, light]


def test_a_tuned_entry_has_a_kernel_file_and_a_rejected_one_has_a_reason(store: Store, tuned: Entry):
    path = store.kernel_path(tuned)
    assert path is not None
    assert path.read_text() == KERNEL
    store.rejected(CLAIM.key, "no faster than compile")
    entry = store.named(CLAIM.graph_key[:6])
    assert entry.state == Rejected("no faster than compile")
    assert store.kernel_path(entry) is None


def test_a_kernel_under_a_wrong_name_is_not_taken(store: Store, tuned: Entry):
    with pytest.raises(ValueError, match="not"):
        store.tuned(CLAIM.key, "other\n", TUNED)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"torch": "2.13.0"}, "torch 2.11.0 (here 2.13.0)"),
        ({"egg": "9.9"}, "egg 0.1.0 (here 9.9)"),
        ({"gpu": ""}, "NVIDIA H200 (here none)"),
        ({"policy": Policy(Precision.TF32)}, "another policy"),
    ],
)
def test_an_entry_of_other_terms_is_ignored_with_a_word(store, tuned, words, change, word):
    assert store.find(replace(CLAIM, **change)) is None
    assert len(words) == 1
    assert word in words[0]


def test_an_entry_of_another_schema_is_ignored_and_stays(store, tuned, words):
    path = store.folder / "entries" / f"{CLAIM.key}.json"
    path.write_text(json.dumps({"schema": "egg.store-entry/99", "entry": {}}))
    assert store.find(CLAIM) is None
    assert path.exists()
    assert "egg.store-entry/99" in words[0]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema": "egg.store-entry/1"}', "\udcff"])
def test_a_damaged_entry_is_set_aside_with_a_word(store, tuned, words, text):
    path = store.folder / "entries" / f"{CLAIM.key}.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert store.find(CLAIM) is None
    assert not path.exists()
    assert "damaged" in words[0]
    assert len(list((store.folder / "damaged").iterdir())) == 1
    store.record(CLAIM, TASK, Seen(1))
    assert store.find(CLAIM) == Entry(CLAIM, TASK, Seen(1))


@given(some.data())
def test_no_entry_with_a_changed_byte_is_read(data):
    text = Entry(CLAIM, TASK, Seen(1, 2, 3), Rejected("slow")).to_text()
    entry = json.loads(text)
    flat = json.dumps(entry["entry"])
    place = data.draw(some.integers(0, len(flat) - 1))
    letter = data.draw(some.characters(codec="ascii", exclude_characters=flat[place]))
    changed = flat[:place] + letter + flat[place + 1 :]
    written = json.dumps({**entry, "entry": "X"}).replace('"X"', changed)
    try:
        assert Entry.from_text(written) == Entry.from_text(text)
    except Damaged:
        return


def test_an_entry_under_the_name_of_another_is_damaged(store, tuned, words):
    other = replace(CLAIM, graph="other")
    path = store.folder / "entries" / f"{CLAIM.key}.json"
    path.rename(path.with_name(f"{other.key}.json"))
    assert store.find(other) is None
    assert CLAIM.key in words[0]


@pytest.mark.parametrize("harm", [lambda path: path.unlink(), lambda path: path.write_text("import os\n")])
def test_a_changed_kernel_is_never_handed_out(store, tuned, words, harm):
    harm(store.kernel_path(tuned))
    assert store.kernel_path(tuned) is None
    assert "set aside" in words[0]
    assert store.find(CLAIM) is None


def test_a_store_that_cannot_be_written_is_read(store, tuned, monkeypatch):
    def refused(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refused)
    assert store.find(CLAIM) == tuned
    with pytest.raises(MachineError, match="cannot write"):
        store.count(CLAIM.key, Seen(1))


def test_removing_deletes_kernels_that_nothing_names_and_runs(store, tuned):
    other = replace(CLAIM, graph="other")
    store.record(other, TASK, Seen(1))
    store.tuned(other.key, KERNEL, TUNED)
    store.run_folder(tuned, "quick").mkdir(parents=True)
    assert store.remove([tuned]) == 1
    assert not store.run_folder(tuned, "quick").exists()
    assert store.kernel_path(store.named(other.key)) is not None
    assert store.remove([store.named(other.key)]) == 1
    assert list((store.folder / "kernels").iterdir()) == []


def test_entries_travel_as_a_folder_and_what_is_decided_here_stays(store, tuned, tmp_path, words):
    other = Store(tmp_path / "other", words.append)
    other.record(CLAIM, TASK, Seen(5, 5, 5))
    assert other.take_in(store, store.entries()) == 1
    (entry,) = other.entries()
    assert entry.seen == Seen(5, 5, 5)
    assert other.kernel_path(entry) is not None
    store.rejected(CLAIM.key, "slower today")
    assert other.take_in(store, store.entries()) == 0
    assert words == []


def test_a_key_that_is_not_unique_is_refused(store, tuned):
    with pytest.raises(UsageError, match="no entry"):
        store.named("zz")
    with pytest.raises(UsageError):
        store.named("")


def test_where_the_store_is(tmp_path: Path):
    assert store_folder(None, {"XDG_DATA_HOME": "/data"}) == Path("/data/egg/kernels")
    assert store_folder(None, {"EGG_STORE": str(tmp_path)}) == tmp_path
    assert store_folder(tmp_path / "own", {"EGG_STORE": "/other"}) == tmp_path / "own"


def test_processes_that_write_at_once_lose_no_count(tmp_path: Path):
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, tmp_path, "25"], stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for writer in writers:
        assert writer.wait(120) == 0, writer.stderr.read()
        writer.stderr.close()
    (entry,) = Store(tmp_path, warn).entries()
    assert entry.seen == Seen(75, 150, 100)
    assert entry.state == TUNED
    assert [path.name for path in (tmp_path / "entries").iterdir()] == [f"{CLAIM.key}.json"]
