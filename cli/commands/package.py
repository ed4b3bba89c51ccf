"""`waybill package`: manifests, and whether they fit together."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from msgspec.structs import replace

from waybill.transport import NotFoundError, Settings, WaybillError
from waybill.transport.errors import NameTakenError

from .. import console
from ..arguments import Csv, JsonLines, JsonObject, argument, flag, valued
from ..commanding import Group
from ..options import with_settings
from ..records import as_plain

if TYPE_CHECKING:
    from waybill.pipelines import BrokenUse, Package, PackageFinding

app: Final = Group(help="Write, check, list and show the manifests of packages.")

_Folder = Annotated[Path, argument("FOLDER", "Where to look for packages, and below it.")]
_Place = Annotated[Path, argument("PACKAGE", "The package's folder, or its manifest.")]


@app.command("init")
def init(
    folder: Annotated[Path, argument("FOLDER", "The package's folder.")],
    *,
    as_json: JsonObject = False,
) -> None:
    """Write a manifest with comments, dk.yaml, into a folder.

    Examples:
      waybill package init ./my-package
    """
    from waybill.pipelines import MANIFEST_NAMES, sample_manifest
    from waybill.transport.files import Files, publish_new

    there = next((folder / name for name in MANIFEST_NAMES if (folder / name).exists()), None)
    if there is not None:
        raise NameTakenError(f"{there} is there already; `waybill package validate {folder}` checks it")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder.absolute() / MANIFEST_NAMES[0]
    publish_new(Files(), path, sample_manifest(folder.absolute().name).encode())
    if as_json:
        console.json({"file": str(path)})
        return
    console.line(str(path))
    console.note(f"fill it in, then run `waybill package validate {folder}` and `waybill run {folder}`")


@app.command("validate")
@with_settings("home", "root")
def validate(
    settings: Settings,
    folder: _Folder = Path(),
    *,
    impact: Annotated[
        str | None, valued("REF", "Also show what changed since this commit, and what that breaks.")
    ] = None,
    strict: Annotated[bool, flag("--strict", "Fail for warnings, too.")] = False,
    as_json: JsonLines = False,
) -> None:
    """Check manifests, and whether the packages fit together.

    Errors are what no manifest can have, a program or a script that is not there, a dataset that two packages
    spell differently, one that is read in another namespace than it is written in, two packages of one name,
    and packages that read each other's outputs. Warnings are an input that no package writes, and a dataset
    that several write. With --impact, also each package that reads what another one wrote at that commit, and
    does not write any more, or with other columns; and what the home knows to come from it. Exit code 1 if
    there is an error, or something breaks.

    Examples:
      waybill package validate ./packages
      waybill package validate --impact main
    """
    from waybill.pipelines import check_packages, list_broken_uses, list_packages

    packages, findings = list_packages(folder)
    if not packages and not findings:
        raise NotFoundError(f"there is no manifest below {folder}; `waybill package init` writes one")
    findings += check_packages(packages)
    broken = [] if impact is None else list_broken_uses(_packages_at(impact, folder), packages)
    if as_json:
        for one in (*findings, *broken):
            console.json(as_plain(one))
    else:
        _show(findings, broken, settings)
    failed = sum(one.is_error or strict for one in findings)
    console.note(f"{console.counted(len(packages), 'package')}, {console.counted(failed, 'error')}")
    console.fail_if(failed or broken)


@app.command("list")
def list_all(folder: _Folder = Path(), *, as_json: JsonLines = False, as_csv: Csv = False) -> None:
    """List the packages in a folder and below it.

    Examples:
      waybill package list ./packages
    """
    from waybill.pipelines import list_packages

    packages, findings = list_packages(folder)
    if as_json:
        for package in packages:
            console.json({"path": str(package.path), **as_plain(package.manifest)})
    elif packages or as_csv:
        columns = ("name", "namespace", "version", "owner", "tier", "inputs", "outputs", "manifest")
        console.table(columns, map(_row, packages), as_csv=as_csv)
    if not packages and not findings:
        console.note(f"there is no package in {folder} or below it")
    console.fail_for(f"{one.path}:{one.line}: {one.field}: {one.what}" for one in findings)


@app.command("show")
def show(package: _Place, *, as_json: JsonObject = False) -> None:
    """Show a package: what its manifest says, with the datasets' full names.

    Examples:
      waybill package show ./my-package
    """
    from waybill.pipelines import read_package

    found = read_package(package)
    manifest, metadata = found.manifest, found.manifest.metadata
    if as_json:
        datasets = {
            side: [{**as_plain(spec), "dataset": list(found.dataset_of(spec))} for spec in specs]
            for side, specs in (("inputs", manifest.inputs), ("outputs", manifest.outputs))
        }
        console.json({"path": str(found.path), **as_plain(manifest), **datasets})
        return
    console.line((f"{metadata.namespace}/{metadata.name}", "bold"), f"  {metadata.version}".rstrip())
    for title, text in (
        ("About", metadata.description),
        ("Owner", metadata.owner),
        ("Tier", manifest.tier),
        ("Command", " ".join(manifest.runtime.arguments)),
    ):
        if text:
            console.line(f"  {title}: {console.shown(text)}")
    for title, specs in (("Inputs", manifest.inputs), ("Outputs", manifest.outputs)):
        console.line(f"  {title}:")
        for spec in specs:
            namespace, name = found.dataset_of(spec)
            console.line(f"    {console.shown(spec.name)}: {console.shown(f'{namespace} {name}')}")


def _row(package: Package) -> tuple[str, ...]:
    manifest, metadata = package.manifest, package.manifest.metadata
    names = [", ".join(spec.name for spec in specs) for specs in (manifest.inputs, manifest.outputs)]
    return (
        *(metadata.name, metadata.namespace, metadata.version, metadata.owner, manifest.tier),
        *(*names, str(package.path)),
    )


def _show(findings: Iterable[PackageFinding], broken: Sequence[BrokenUse], settings: Settings) -> None:
    for one in findings:
        level = ("error: ", "bold red") if one.is_error else ("warning: ", "yellow")
        what = f"{one.field}: {one.what}" if one.field else one.what
        console.line(console.shown(f"{one.path}:{one.line}: "), level, console.shown(what))
    for use in broken:
        what = f"{' '.join(use.dataset)}: {use.change}; {use.reader} reads it"
        console.line(("breaks: ", "bold red"), console.shown(what))
    for dataset in dict.fromkeys(use.dataset for use in broken):
        for line in _known_below(settings, dataset):
            console.line(f"  {console.shown(line)}")


def _known_below(settings: Settings, dataset: tuple[str, str]) -> list[str]:
    """What the home knows to come from a dataset, with its owners."""
    from waybill.lineage.graph import OfImpact, shown

    from ..graph import ask_graph

    try:
        found = ask_graph(settings, OfImpact("/".join(dataset)))
    except WaybillError:  # there is no home, or it does not know the dataset
        return []
    return [
        f"reaches {shown(one.node)}" + (f" of {', '.join(one.owners)}" if one.owners else "")
        for one in found.nodes
    ]


def _packages_at(ref: str, folder: Path) -> list[Package]:
    """The packages in a folder at a commit."""
    from waybill.pipelines import MANIFEST_NAMES, list_packages

    asked = ["git", "-C", str(folder), "archive", "--format=tar", ref, "--", "."]
    done = subprocess.run(asked, check=False, capture_output=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        says = done.stderr.decode(errors="replace").strip().splitlines()
        raise NotFoundError(f"git does not have {ref} of {folder}: {says[-1] if says else 'unknown'}")
    with tempfile.TemporaryDirectory() as place:
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
            for member in tar:
                path, content = Path(place, member.name), tar.extractfile(member) if member.isfile() else None
                if path.name in MANIFEST_NAMES and content is not None:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content.read())
        packages, _ = list_packages(Path(place))
    # A dataset that is a file of the package has its path, and that is here.
    return [replace(one, path=folder.absolute() / one.path.relative_to(place)) for one in packages]
