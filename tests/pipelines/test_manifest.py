"""A manifest is read as it is meant, or refused with file, line and field."""

from __future__ import annotations

import pickle
import time
from pathlib import Path

import msgspec
import pytest

from waybill.pipelines import (
    YamlFileError,
    check_packages,
    list_broken_uses,
    list_packages,
    manifest_schema,
    read_package,
    sample_manifest,
)
from waybill.transport import NotFoundError

WHOLE = """\
metadata:
  name: daily
  labels: {a: b}
runtime:
  command: python "my job.py" --fast
  timeout: 1h 30m
inputs:
  - name: orders
    binding: s3a://lake/orders
outputs:
  - name: totals
    binding: {namespace: "postgres://db:5432", dataset: shop.totals}
tier: critical
expected:
  - {source: orders.total, target: totals}
objective: {freshness: 24h, completeness: 0.9}
"""


def write(folder: Path, text: str, name: str = "dk.yaml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("name", ["dk.yaml", "waybill-package.yaml"])
def test_a_manifest_says_how_a_program_is_run_and_what_its_datasets_are(tmp_path: Path, name: str) -> None:
    package = read_package(write(tmp_path, WHOLE, name))
    manifest = package.manifest
    assert manifest.runtime.arguments == ["python", "my job.py", "--fast"]
    assert package.dataset_of(manifest.inputs[0]) == ("s3://lake", "orders")
    assert package.dataset_of(manifest.outputs[0]) == ("postgres://db:5432", "shop.totals")
    assert (manifest.tier, manifest.objective.freshness) == ("critical", "24h")
    assert read_package(tmp_path / name) == package


def test_the_manifest_that_a_new_package_begins_with_is_one(tmp_path: Path) -> None:
    package = read_package(write(tmp_path, sample_manifest('a "b"\nc')))
    assert package.manifest.metadata.name == 'a "b"\nc'
    uncommented = sample_manifest("x").replace("  # ", "  ").replace("\n# ", "\n").replace("    # ", "    ")
    with pytest.raises(YamlFileError):  # each comment is text for a person, too
        read_package(write(tmp_path / "other", uncommented))


@pytest.mark.parametrize(
    ("line", "instead", "says"),
    [
        (2, "  nmae: daily", "2: metadata.nmae: there is no such field; did you mean name?"),
        (2, "  version: x", "1: metadata: name is missing"),
        (3, "  labels: {a: 1}", "3: metadata.labels: expected a text, got a whole number"),
        (5, "  command: []", "5: runtime.command: "),
        (5, "  command: 'a \"b'", "5: runtime.command: No closing quotation; close the quotes"),
        (6, "  timeout: soon", "6: runtime.timeout: give a duration such as 90s, 30m or 1h 30m, of at most"),
        (6, f"  timeout: {'9' * 5_000}s", "6: runtime.timeout: give a duration such as 90s, 30m or 1h 30m"),
        (6, "  retries: -1", "6: runtime.retries: "),
        (9, "    bindng: x", "9: inputs.0.bindng: there is no such field; did you mean binding?"),
        (9, "    binding: {namespace: a}", "9: inputs.0.binding: dataset is missing"),
        (11, "  - name: orders", "11: outputs.0.name: 'orders' is the name of inputs.0, too"),
        (13, "tier: high", "13: tier: 'high' is not a possible value"),
        (15, "  - {source: order, target: totals}", "15: expected.0.source: there is no input 'order'"),
        (13, "tier: [", "15: it is not valid YAML: "),
        (13, "a: &a b\nb: *a", "14: it is not valid YAML: settings have no aliases"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_field(
    tmp_path: Path, line: int, instead: str, says: str
) -> None:
    lines = WHOLE.splitlines()
    lines[line - 1] = instead
    with pytest.raises(YamlFileError) as raised:
        read_package(write(tmp_path, "\n".join(lines)))
    assert str(raised.value).startswith(f"{tmp_path / 'dk.yaml'}:{says}")
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_a_folder_without_a_manifest_or_with_two_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="`waybill package init"):
        read_package(tmp_path)
    write(tmp_path, WHOLE)
    write(tmp_path, WHOLE, "waybill-package.yaml")
    with pytest.raises(NotFoundError, match="keep one of them"):
        read_package(tmp_path)


def test_the_schema_names_each_field() -> None:
    definitions = manifest_schema()["$defs"]
    assert set(definitions["Manifest"]["properties"]) >= {"metadata", "runtime", "inputs", "outputs", "tier"}
    assert definitions["Manifest"]["required"] == ["metadata", "runtime"]
    assert definitions["DatasetSpec"]["additionalProperties"] is False
    msgspec.json.encode(definitions)


def package(folder: Path, reads: str = "", writes: str = "", name: str = "") -> Path:
    sides = {"inputs": reads, "outputs": writes}
    lines = [f"metadata: {{name: {name or folder.name}}}", 'runtime: {command: ["true"]}']
    for side, uses in sides.items():
        for number, dataset in enumerate(uses.split()):
            lines += [f"{side}:"] if number == 0 else []
            namespace, _, rest = dataset.partition("|")
            columns = rest.partition("#")
            schema = "".join(f"{{name: {one}, type: long}}, " for one in filter(None, columns[2].split(",")))
            binding = f"{{namespace: '{namespace}', dataset: {columns[0]}}}"
            lines.append(f"  - {{name: {side}{number}, binding: {binding}, schema: [{schema}]}}")
    return write(folder, "\n".join(lines))


def findings_in(folder: Path) -> list[tuple[str, str, bool]]:
    packages, broken = list_packages(folder)
    assert not broken
    return [(Path(one.path).parent.name, one.what, one.is_error) for one in check_packages(packages)]


def test_what_does_not_fit_together_is_found(tmp_path: Path) -> None:
    package(tmp_path / "a", writes="db|orders")
    package(tmp_path / "b", reads="db|Orders", writes="db|totals")
    package(tmp_path / "c", reads="other|totals kafka|topic")
    package(tmp_path / "d", writes="db|orders", name="b")
    at = {name: tmp_path / name / "dk.yaml" for name in "abcd"}
    assert findings_in(tmp_path) == [
        ("b", f"db Orders is db orders in a ({at['a']}); spell it in one way", True),
        ("c", f"b ({at['b']}) writes db totals; give both the same namespace", True),
        ("c", "no package writes kafka topic", False),
        ("d", f"the package default/b is at {at['b']}, too; give each its own name", True),
        ("d", f"db orders is written by a ({at['a']}), too, which may be a mistake", False),
    ]


def test_packages_that_read_each_others_outputs_are_a_cycle_once(tmp_path: Path) -> None:
    package(tmp_path / "a", reads="db|t3", writes="db|t1")
    package(tmp_path / "b", reads="db|t1", writes="db|t2")
    package(tmp_path / "c", reads="db|t2 db|t3", writes="db|t3")
    found = findings_in(tmp_path)
    assert [(name, is_error) for name, _, is_error in found] == [("a", True)]
    way = " → ".join(str(tmp_path / name / "dk.yaml") for name in "abca")
    assert found[0][1] == f"these packages read each other's outputs: {way}"


def test_a_change_that_breaks_a_reader_is_listed(tmp_path: Path) -> None:
    package(tmp_path / "a", writes="db|orders#id,total db|gone db|unread")
    package(tmp_path / "b", reads="db|orders db|gone")
    before, _ = list_packages(tmp_path)
    package(tmp_path / "a", writes="db|orders#id")
    now, _ = list_packages(tmp_path)
    reader = str(tmp_path / "b" / "dk.yaml")
    assert [(one.dataset, one.change, one.reader) for one in list_broken_uses(before, now)] == [
        (("db", "gone"), "it is not written any more", reader),
        (("db", "orders"), "the column total is gone", reader),
    ]
    assert list_broken_uses(before, before) == []


def test_a_hundred_packages_are_checked_in_a_second(tmp_path: Path) -> None:
    for number in range(100):
        package(tmp_path / f"p{number}", reads=f"db|t{number}", writes=f"db|t{number + 1}")
    began_s = time.process_time()
    packages, _ = list_packages(tmp_path)
    assert len(check_packages(packages)) == 1
    assert time.process_time() - began_s < 1
