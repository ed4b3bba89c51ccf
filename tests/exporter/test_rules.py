"""The rules of annotations that files name, and the checks of their rows by these rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from layouts import NODE, Layout, event, facet, findings, record
from sites import Site

from waybill.exporter import Compactor, Wanted, compare, explain, export, open_destination, rebuild
from waybill.exporter.compaction import RawWriter, squash_hour
from waybill.exporter.names import RawName, hour_of
from waybill.exporter.parquet import Rules, is_apart, open_file
from waybill.exporter.query import Difference
from waybill.exporter.rebuilding import rule_for
from waybill.exporter.sources import EventsSource, Source
from waybill.facets import AnnotationRule
from waybill.lineage import find
from waybill.transport import Settings

EVERY = AnnotationRule(frozenset({"*"}))
NONE, YEAR = AnnotationRule(), AnnotationRule(frozenset({"year"}))
CAUSE = AnnotationRule(frozenset({"errorCause"}), reasons=False)
SILENT = AnnotationRule(reasons=False)
HOUR = hour_of(record("a").completed)


def rules_of(path: Path) -> frozenset[AnnotationRule]:
    return Rules.read(open_file(path).metadata.metadata).distinct


def write(root: Path, at: int, rule: AnnotationRule) -> None:
    RawWriter(root, rule=rule).write(RawName(NODE, at, at), [record(f"d{at}")])


def test_a_file_names_each_rule_that_its_rows_were_written_by(layout: Layout, tmp_path: Path) -> None:
    for at, rule in enumerate([NONE, YEAR], 1):
        write(layout.root, at, rule)
    squash_hour(layout.root, HOUR, node=NODE)
    (squashed,) = layout.raw()
    assert rules_of(squashed) == {NONE, YEAR}
    layout.compactor().compact()
    write(layout.root, 3, SILENT)
    layout.compactor().compact()
    (compacted,) = layout.compacted()
    assert rules_of(compacted) == {NONE, YEAR, SILENT}
    there = Layout(tmp_path / "there")
    write(there.root, 4, CAUSE)
    there.compactor().compact()
    export(layout.root, open_destination(str(there.root)))
    (merged,) = there.compacted()
    assert rules_of(merged) == {NONE, YEAR, SILENT, CAUSE}


@pytest.mark.parametrize(
    ("ours", "theirs", "apart"),
    [
        ([NONE], [NONE], ""),
        ([], [YEAR], ""),
        ([NONE], [YEAR], "year"),
        ([NONE, YEAR], [YEAR], "year"),
        ([NONE, YEAR], [YEAR, NONE], ""),
        ([NONE], [SILENT], "errorCause filteredCause"),
        # A sender's annotation of this name takes precedence over the one that Waybill derived.
        ([NONE], [CAUSE], "errorCause filteredCause"),
        ([CAUSE], [AnnotationRule(frozenset({"errorCause"}))], "filteredCause"),
        ([EVERY], [EVERY], ""),
        ([EVERY], [YEAR], "errorCause filteredCause other"),
        ([EVERY, YEAR], [YEAR], "errorCause filteredCause other"),
    ],
)
def test_keys_are_apart_where_rules_write_them_otherwise(
    ours: list[AnnotationRule], theirs: list[AnnotationRule], apart: str
) -> None:
    one, two = Rules(frozenset(ours)), Rules(frozenset(theirs))
    keys = ["errorCause", "filteredCause", "other", "waybill.evidence", "year"]
    for first, second in ((one, two), (two, one)):
        assert [key for key in keys if is_apart(first, second, key)] == apart.split()


# -- a key that is allowed later ---------------------------------------------------------------------------


class Home(Site):
    """A home whose second batch is filed after a key was allowed; everything is in one compacted file."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.file("old", 0)
        self.settings = msgspec.structs.replace(settings, provenance_annotations_allowed=YEAR.allowed)
        self.restart()
        self.file("new", 1_000)

    def file(self, did: str, at_ms: int, **more: object) -> None:
        said = facet(did=did, finalState="ERROR", annotations={"year": "2013", "k": "v"})
        failed = {"errorMessage": {"message": "torn", "programmingLanguage": "PYTHON"}}
        self.tell(
            event(f"run-{did}", "FAIL", at_ms, facets=said, **more),
            event(f"derived-{did}", "FAIL", at_ms + 1, facets=failed | _tags(year="2014")),
        )

    @property
    def source(self) -> Source:
        return EventsSource(self.root)

    def is_proven(self, did: str) -> bool:
        wanted = Wanted(system_name="tests", rule=self.settings.annotation_rule)
        return explain(did, [self.source], self.root, wanted).is_proven

    def again(self, rule: AnnotationRule) -> Path:
        root = self.root.with_name(f"again-{len(rule.allowed)}")
        rebuild(self.source, root, Wanted(system_name="tests", rule=rule))
        return root


def _tags(**said: str) -> dict[str, object]:
    return {"tags": {"tags": [{"key": key, "value": value, "source": "USER"} for key, value in said.items()]}}


@pytest.fixture
def home(settings: Settings) -> Iterator[Home]:
    made = Home(settings)
    yield made
    made.close()


def test_a_key_that_is_allowed_later_makes_no_row_altered(home: Home) -> None:
    rows = {row.did: row.annotations for row in find(home.root)}
    assert (rows["old"], rows["new"]) == (None, {"year": "2013"})
    assert rows["derived-old"] == {"errorCause": "torn"}
    assert rows["derived-new"] == {"errorCause": "torn", "year": "2014"}
    assert [did for did in rows if not home.is_proven(did)] == []
    left_out: set[str] = set()
    assert list(compare(home.root, home.again(YEAR), left_out=left_out)) == []
    assert left_out == {"year"}
    # Each file was written by the rules that it names.
    assert findings(home.root) == []


@pytest.mark.parametrize("annotations", [{"errorCause": "whole"}, {"errorCause": "torn", "k": "v"}, None])
def test_what_no_rule_of_a_file_writes_is_altered(home: Home, annotations: dict[str, str] | None) -> None:
    (row,) = [one for one in find(home.root) if one.did == "derived-old"]
    forged = msgspec.structs.replace(row, annotations=annotations)
    again = home.again(NONE)
    others = [one for one in find(again) if one.did != row.did]
    elsewhere = home.root.with_name("forged")
    RawWriter(elsewhere, rule=NONE).write(RawName("f0", 1, 1), [*others, forged])
    Compactor(elsewhere, nodes=["f0"], workers=1).compact()
    assert list(compare(elsewhere, home.root)) == [Difference(forged, row)]
    RawWriter(home.root, rule=YEAR).write(RawName("f0", 1, 1), [forged])
    found = explain(row.did, [home.source], home.root, Wanted(system_name="tests"))
    assert [seen.as_folded for seen in found.rows] == [False, True]


def test_no_row_of_a_file_that_names_no_rule_is_proven(home: Home) -> None:
    again = home.again(YEAR)
    for path in Layout(again).compacted():
        pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)
    found = explain("new", [home.source], again, Wanted(system_name="tests", rule=YEAR))
    assert [seen.as_folded for seen in found.rows] == [False]


def test_a_rebuild_goes_by_the_rule_of_the_newest_files_unless_somebody_chose_one(home: Home) -> None:
    nobody = Settings.load({"home": home.root}, env={}, cwd=home.root)
    assert rule_for(nobody, home.root) == YEAR
    assert rule_for(nobody, "s3://bucket/there") == rule_for(nobody, home.root / "none") == NONE
    chosen = Settings.load({"home": home.root, "provenance_reasons": False}, env={}, cwd=home.root)
    assert rule_for(chosen, home.root) == SILENT


def test_merged_rows_may_have_what_either_rule_wrote(home: Home) -> None:
    # The same record comes from another sender, and is filed by the current rule.
    home.file("old", 0, producer="https://example.org/other")
    (row,) = [one for one in find(home.root) if one.did == "old"]
    assert row.annotations == {"year": "2013"}
    assert home.is_proven("old")
