"""What a reader of a page has before the first command of it is pasted: files, events, an earlier home."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import zstandard
from events import members
from pasting import PROGRAMS

from waybill.transport import Journal, Kind, Settings, Tracker, flush

REPOSITORY = Path(__file__).parents[2]
EXPLAINED = "019b76da-9c00-7c5b-8f7e-0b8f1b5e3a11"
ORDERS = "01a1fd6a-9e75-7d78-870f-24897efac4a4"
RUNS = ("01a1fd6a-9e75-7d78-870f-b23ff47e11e6", "01a1fd6a-9e75-7d78-870f-b23ff47e11e7")


class World:
    """A reader's machine.

    Attributes:
        folder: the reader's home.
        stands: where the commands are pasted.
        settings: those of the reader's own home.
        accidents: what happens before a command is pasted the first time, by that command.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.stands = folder, folder / "work"
        self.stands.mkdir()
        self.settings = self.settings_of(folder / ".local" / "share" / "waybill")
        self.accidents: dict[str, Callable[[], None]] = {}

    def happen(self, command: str) -> None:
        """Let happen what does before a command."""
        self.accidents.pop(command, lambda: None)()

    def settings_of(self, home: Path, **others: object) -> Settings:
        """Settings of a home."""
        given = {"home": home, "system_name": "shop", "provenance_enabled": True, "runner": "none", **others}
        return Settings.load(given, origin="a page", env={}, cwd=self.stands)

    def keep(self, *events: dict[str, Any]) -> None:
        """Keep events in the reader's home."""
        with closing(Journal(self.settings.home)) as journal:
            for one in events:
                journal.append(Kind.OPENLINEAGE, json.dumps(one).encode())

    def track(self, name: str = "orders.csv", settings: Settings | None = None) -> None:
        """Track a file, and file its record."""
        settings = settings or self.settings
        with Tracker(settings=settings) as tracker, tracker.file(name, data_source="sftp-in") as file:
            file.egress("lake")
        flush(settings)

    def use(self, home: Path, **others: object) -> None:
        """Make commands use another home."""
        self.settings = self.settings_of(home, **others)
        lines = [f"home: {self.settings.home}", f"root: {self.settings.root}", "provenance_enabled: true"]
        (self.stands / "waybill.yaml").write_text("\n".join([*lines, "system_name: shop", ""]))


def analyzers(world: World) -> None:
    (world.stands / "job.sql").write_text("INSERT INTO totals SELECT region, amount FROM orders\n")
    target = world.stands / "my_dbt_project" / "target"
    target.mkdir(parents=True)
    model = {
        "unique_id": "model.shop.totals", "resource_type": "model", "name": "totals", "database": "shop",
        "schema": "public", "alias": "totals", "depends_on": {"nodes": []}, "columns": {},
        "compiled_code": "SELECT region FROM shop.public.orders",
    }  # fmt: skip
    manifest = {
        "metadata": {"adapter_type": "postgres"},
        "nodes": {"model.shop.totals": model},
        "sources": {},
    }
    (target / "manifest.json").write_text(json.dumps(manifest))
    text = "INSERT INTO daily (id) SELECT id FROM orders"
    line = f"2026-01-31 12:00:00.000 UTC [7] LOG:  duration: 0.4 ms  statement: {text}\n"
    (world.stands / "postgresql.log").write_text(line)
    (world.stands / "queries.jsonl").write_text(json.dumps({"QUERY_TEXT": text}) + "\n")
    world.keep(members(ORDERS))


def datasets(world: World) -> None:
    """A table with what it comes from and what comes from it, and a file that went on to other ones."""
    sources = [
        {"namespace": "kafka://production", "name": "orders"},
        {"namespace": "postgres://users-db", "name": "users"},
    ]
    fields = [{"name": "total", "type": "int"}]
    column = {"inputFields": [sources[0] | {"field": "amount"}]}
    facets = {
        "schema": {"fields": fields},
        "columnLineage": {"fields": {"total": column}},
        "ownership": {"owners": [{"name": "team:sales"}]},
        "tags": {"tags": [{"key": "tier", "value": "gold"}]},
    }
    names = ("daily/orders", "raw", "clean/orders", "sales/orders")
    lake: dict[str, Any] = {name: {"namespace": "s3://lake", "name": name} for name in names}
    written = lake["daily/orders"] | {"facets": facets}
    file = {"did": ORDERS, "filename": "orders.csv", "systemName": "shop", "created": "2026-01-31T12:00:00Z"}
    path = {"dataSource": "sftp-in", "transforms": ["decompress"], "dataSink": "lake"}
    sink = {"identifiers": [{"namespace": "shop", "name": "lake", "type": "DATA_SINK"}]}
    passed, left = {"waybill_deltaFile": file | path}, lake["raw"] | {"facets": {"symlinks": sink}}
    world.keep(
        members(RUNS[0], at="2026-01-30T12:00:00Z", job="shop/daily_orders", inputs=sources[:1]),
        members(RUNS[1], "START", job="shop/daily_orders", inputs=sources),
        members(RUNS[1], "COMPLETE", "2026-01-31T12:05:32Z", job="shop/daily_orders", outputs=[written]),
        members(ORDERS, at="2026-01-31T12:00:02Z", job="shop/sftp-in", facets=passed, outputs=[left]),
        members("d", job="dash/refresh", inputs=[lake["daily/orders"]], outputs=["dashboard/orders"]),
        members("c", job="etl/clean_orders", inputs=[lake["raw"]], outputs=[lake["clean/orders"]]),
        members("h", job="hive/load", outputs=["hive/sales.orders", lake["sales/orders"]]),
    )


def export(world: World) -> None:
    world.use(world.folder / "data" / "home", root=world.folder / "data" / "lineage")
    world.track()
    (world.folder / "bucket" / "lineage").mkdir(parents=True)
    waybill(world, "export", str(world.folder / "bucket" / "lineage"))
    shutil.copytree(world.settings.root, world.folder / "mnt" / "archive")


def waybill(world: World, *words: str) -> None:
    own = ("--home", str(world.settings.home), "--root", str(world.settings.root))
    command = [str(PROGRAMS / "waybill"), *words, *own]
    subprocess.run(command, check=True, cwd=world.stands, capture_output=True)


def fingerprints(world: World) -> None:
    content = b"id,amount\n1,20\n"
    (world.stands / "orders.csv").write_bytes(content)
    (world.stands / "orders.csv.gz").write_bytes(gzip.compress(content))
    (world.stands / "orders-again.csv.zst").write_bytes(zstandard.compress(content))


def lineage_index(world: World) -> None:
    world.use(world.stands)
    owned = {"ownership": {"owners": [{"name": "team:sales"}]}}
    written = [{"namespace": "lake", "name": "orders.daily", "facets": owned}]
    world.keep(members(RUNS[0], job="etl/night", inputs=["file/data/rates.csv"], outputs=written))
    flush(world.settings)


def operations(world: World) -> None:
    """Two homes: one that goes, and one whose root is lost, and later a file of the root."""
    world.track(settings=world.settings_of(world.folder / "var" / "lib" / "waybill"))
    (world.folder / "bucket" / "lineage").mkdir(parents=True)
    root = world.folder / "data" / "lineage"
    world.settings = world.settings_of(world.settings.home, root=root)
    world.track()

    def lose_root() -> None:
        shutil.rmtree(root)
        root.mkdir()

    def damage_file() -> None:
        compacted = root / "provenance" / "compacted" / "edge" / "20260131" / "12.parquet"
        file = {"dataSource": "sftp-in", "systemName": "edge"}
        for did in RUNS:
            if compacted.exists():
                compacted.write_bytes(compacted.read_bytes()[:-100] + b"x" * 100)
            world.keep(members(did, facets={"waybill_deltaFile": file | {"did": did}}))
            flush(world.settings)

    world.accidents = {
        "waybill root show": lose_root,
        "waybill verify /data/lineage": damage_file,
    }
    world.keep(members(ORDERS, "START"))


def packages(world: World) -> None:
    shutil.copytree(REPOSITORY / "examples", world.stands / "examples")
    package = world.stands / "packages" / "load"
    package.mkdir(parents=True)
    (package / "dk.yaml").write_text("metadata: {name: load}\nruntime: {command: ['true']}\n")
    own = ("git", "-C", str(package.parent), "-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-b", "main"), ("add", "."), ("commit", "-m", "A package")):
        subprocess.run([*own, *words], check=True, capture_output=True)


def rebuild(world: World) -> None:
    """A home whose events are also in files of lines, and a root that was copied."""
    world.settings = world.settings_of(world.settings.home, root=world.folder / "data" / "lineage")
    events = [members(run, job="shop/orders", outputs=["lake/orders"]) for run in (EXPLAINED, ORDERS)]
    (world.stands / "events.jsonl").write_text(f"{json.dumps(events[0])}\n")
    (world.stands / "older").mkdir()
    (world.stands / "older" / "events.gz").write_bytes(gzip.compress(json.dumps(events[1]).encode()))
    world.keep(*events)
    flush(world.settings)
    shutil.copytree(world.settings.root, world.folder / "mnt" / "shared" / "lineage")


def with_a_file(world: World) -> None:
    world.track()


WORLDS: dict[str, Callable[[World], None]] = {
    "analyzers.md": analyzers,
    "datasets.md": datasets,
    "dbt.md": with_a_file,
    "export.md": export,
    "fingerprints.md": fingerprints,
    "lineage-index.md": lineage_index,
    "operations.md": operations,
    "pipelines.md": packages,
    "rebuild.md": rebuild,
    "queries.md": with_a_file,
    "service-levels.md": with_a_file,
    "uninstall.md": with_a_file,
}
