"""What there should be: the datasets that an inventory names, and the edges that are expected."""

from __future__ import annotations

import csv
import os
import queue
import threading
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, cast

import msgspec

from waybill.pipelines import list_packages
from waybill.pipelines.yaml_files import duration_s
from waybill.transport.clock import SYSTEM_CLOCK
from waybill.transport.config import find_doubt
from waybill.transport.decoding import in_plain_words
from waybill.transport.errors import WaybillError, reason_of

from .objectives import TIERS, Tier

if TYPE_CHECKING:
    from waybill.pipelines import Package

    from .objectives import Inventory, Plan

_ANSWER_MAX_BYTES: Final = 256 * 2**20
_CHUNK_BYTES: Final = 64 * 2**10

_Name = Annotated[str, msgspec.Meta(min_length=1)]


class DeclaredError(WaybillError):
    """An inventory, or a sample of edges, cannot be read; the message names the file and its line."""


class KnownDataset(msgspec.Struct, frozen=True, gc=False):
    """A dataset that an inventory names.

    Attributes:
        namespace: of the dataset.
        name: of the dataset.
        tier: what its package or the inventory says; None: nothing.
        owner: likewise.
        freshness_s: how old its newest lineage may be by its package's manifest, in seconds.
        completeness: which share of the required fields is promised there.
    """

    namespace: _Name
    name: _Name
    tier: Tier | None = None
    owner: str | None = None
    freshness_s: float | None = None
    completeness: float | None = None


class ExpectedFlow(NamedTuple):
    """An edge that the graph should have, from a dataset or its column to another one."""

    source: tuple[str, str, str]
    target: tuple[str, str, str]


class Declared(NamedTuple):
    """What there should be.

    Attributes:
        datasets: the datasets that there are.
        flows: the edges that should be there.
        lack: by level, why that is not known; empty of a level: it is.
    """

    datasets: tuple[KnownDataset, ...]
    flows: tuple[ExpectedFlow, ...]
    coverage_lack: str
    accuracy_lack: str


def read_declared(plan: Plan) -> Declared:
    """Read the inventory and the expected edges; what cannot be read is said as a lack."""
    inventory, expected = plan.file.inventory, plan.file.expected
    datasets: list[KnownDataset] = []
    flows: list[ExpectedFlow] = []
    coverage_lack = accuracy_lack = ""
    if not (inventory.manifests or inventory.csv or inventory.url):
        coverage_lack = "no inventory says which datasets there are; give one in slis.yaml"
    if not (inventory.manifests or expected.csv or expected.analyzer):
        accuracy_lack = "nothing says which edges are expected; give manifests, a sample or an analyzer"
    try:
        for package in _packages_in(plan):
            datasets += _datasets_of(package)
            flows += _flows_of(package)
    except DeclaredError as error:
        coverage_lack = accuracy_lack = str(error)
    try:
        for path in inventory.csv:
            datasets += _datasets_in(_rows_of(plan, path, _DATASET_COLUMNS))
        if inventory.url is not None:
            datasets += _ask_catalogue(inventory)
    except DeclaredError as error:
        coverage_lack = coverage_lack or str(error)
    try:
        for path in expected.csv:
            flows += map(_flow_of, _rows_of(plan, path, _FLOW_COLUMNS))
    except DeclaredError as error:
        accuracy_lack = accuracy_lack or str(error)
    return Declared(tuple(datasets), tuple(flows), coverage_lack, accuracy_lack)


def _packages_in(plan: Plan) -> Iterator[Package]:
    for folder in plan.file.inventory.manifests:
        place = plan.folder / folder
        if not place.is_dir():
            raise DeclaredError(f"there is no folder {place} of manifests; correct it in slis.yaml")
        packages, findings = list_packages(place, by_group=plan.by_group)
        for one in findings:
            raise DeclaredError(f"{one.path}:{one.line}: {one.field}: {one.what}")
        yield from packages


def _datasets_of(package: Package) -> Iterator[KnownDataset]:
    manifest = package.manifest
    for spec in manifest.inputs:
        yield KnownDataset(*package.dataset_of(spec))
    freshness = manifest.objective.freshness
    for spec in manifest.outputs:
        yield KnownDataset(
            *package.dataset_of(spec),
            manifest.tier,
            manifest.metadata.owner or None,
            duration_s(freshness) if freshness else None,
            manifest.objective.completeness,
        )


def _flows_of(package: Package) -> Iterator[ExpectedFlow]:
    manifest = package.manifest
    specs = {spec.name: spec for spec in (*manifest.inputs, *manifest.outputs)}

    def end_of(name: str) -> tuple[str, str, str]:
        spec = specs[name if name in specs else max(one for one in specs if name.startswith(f"{one}."))]
        namespace, dataset = package.dataset_of(spec)
        return namespace, dataset, name[len(spec.name) + 1 :]

    for edge in manifest.expected:
        yield ExpectedFlow(end_of(edge.source), end_of(edge.target))


_DATASET_COLUMNS: Final = ("namespace", "name")
_FLOW_COLUMNS: Final = ("source_namespace", "source", "target_namespace", "target")


def _rows_of(plan: Plan, name: str, needed: tuple[str, ...]) -> Iterator[dict[str, str]]:
    path = plan.folder / name
    try:
        if doubt := find_doubt(path, by_group=plan.by_group):
            raise DeclaredError(f"{path} {doubt}")
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DeclaredError(f"{path} cannot be read: {reason_of(error)}") from None
    return _rows_in(str(path), text, needed)


def _rows_in(where: str, text: str, needed: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """The rows of a CSV, with all that is needed and no unknown tier."""
    reader = csv.reader(text.splitlines(keepends=True), strict=True)
    try:
        names = [name.strip() for name in next(reader, [])]
        if lacking := [name for name in needed if name not in names]:
            says = f"the column {lacking[0]} is missing; the first line has to name {', '.join(needed)}"
            raise DeclaredError(f"{where}:1: {says}")
        for cells in filter(None, reader):
            row = dict(zip(names, cells, strict=False))
            if not all(map(row.get, needed)):
                empty, *_ = (name for name in needed if not row.get(name))
                raise DeclaredError(f"{where}:{reader.line_num}: {empty}: it is empty; give a value")
            if (tier := row.get("tier")) and tier not in TIERS:
                says = f"{tier!r} is no tier; give one of {', '.join(TIERS)}"
                raise DeclaredError(f"{where}:{reader.line_num}: tier: {says}")
            yield row
    except csv.Error as error:
        raise DeclaredError(f"{where}:{reader.line_num}: it is no CSV: {error}") from None


def _datasets_in(rows: Iterator[dict[str, str]]) -> Iterator[KnownDataset]:
    for row in rows:
        tier, owner = row.get("tier") or None, row.get("owner") or None
        yield KnownDataset(row["namespace"], row["name"], cast("Tier | None", tier), owner)


def _flow_of(row: Mapping[str, str]) -> ExpectedFlow:
    ends = ((row[f"{end}_namespace"], row[end], row.get(f"{end}_column") or "") for end in _ENDS)
    return ExpectedFlow(*ends)


def _ask_catalogue(inventory: Inventory) -> Iterator[KnownDataset]:
    """The datasets that a catalogue lists; the time limit is for its whole answer."""
    from waybill.marquez.backend import shown

    url, timeout_s = inventory.url or "", duration_s(inventory.timeout)
    where = f"the catalogue at {shown(url)}"
    token = None
    if inventory.token_variable is not None:
        token = os.environ.get(inventory.token_variable)
        if token is None:
            says = f"the variable {inventory.token_variable} with its token is not set"
            raise DeclaredError(f"{where} cannot be asked: {says}")
    answers: queue.SimpleQueue[tuple[bytes, str] | str] = queue.SimpleQueue()
    # A thread, since a read ends within no time if the answer comes byte by byte.
    ask = threading.Thread(target=lambda: answers.put(_get(url, token, timeout_s)), daemon=True)
    ask.start()
    try:
        answer = answers.get(timeout=timeout_s)
    except queue.Empty:
        answer = (
            f"does not answer within {timeout_s:g} s; look at it, or raise inventory.timeout in slis.yaml"
        )
    if isinstance(answer, str):
        raise DeclaredError(f"{where} {answer}")
    content, kind = answer
    try:
        text = content.decode("utf-8-sig")
        if "csv" in kind:
            return _datasets_in(_rows_in(where, text, _DATASET_COLUMNS))
        return iter(_LISTED.decode(_list_in(text)))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        said = in_plain_words(error) if isinstance(error, msgspec.DecodeError) else str(error)
        raise DeclaredError(f"{where} lists no datasets as JSON or CSV: {said}") from None


def _list_in(text: str) -> msgspec.Raw | str:
    """The list itself, or the first one in an object around it."""
    if text.lstrip().startswith("{"):
        members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        return next((one for one in members.values() if bytes(one).startswith(b"[")), text)
    return text


def _get(url: str, token: str | None, timeout_s: float) -> tuple[bytes, str] | str:
    """What an address answers, and of which type; or a phrase that says why it does not."""
    import requests

    from waybill.marquez.backend import open_session

    until_s, content = SYSTEM_CLOCK.monotonic_s() + timeout_s, bytearray()
    try:
        with (
            open_session(url, token) as session,
            session.get(url, timeout=timeout_s, stream=True, allow_redirects=False) as response,
        ):
            if response.status_code != HTTPStatus.OK:
                return f"answers {response.status_code}; correct its address or its token in slis.yaml"
            for chunk in response.iter_content(_CHUNK_BYTES):
                content += chunk
                if len(content) > _ANSWER_MAX_BYTES or SYSTEM_CLOCK.monotonic_s() > until_s:
                    return "answers with too much; give an address that answers with less"
            return bytes(content), response.headers.get("content-type", "")
    except (requests.RequestException, ValueError) as error:
        # Its text may show the token or a password in the address.
        return f"cannot be reached ({type(error).__name__}); correct its address in slis.yaml"


_ENDS: Final = ("source", "target")
_LISTED: Final = msgspec.json.Decoder(list[KnownDataset])
