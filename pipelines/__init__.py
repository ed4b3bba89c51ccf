"""Packages: programs that are tracked from outside, by what their manifests say.

Importing this package loads neither the OpenLineage client nor a parser of YAML.
"""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .checking import (
        BrokenUse as BrokenUse,
        PackageFinding as PackageFinding,
        check_packages as check_packages,
        list_broken_uses as list_broken_uses,
        list_packages as list_packages,
    )
    from .manifest import (
        MANIFEST_NAMES as MANIFEST_NAMES,
        Manifest as Manifest,
        Package as Package,
        find_manifest as find_manifest,
        manifest_schema as manifest_schema,
        read_package as read_package,
    )
    from .reporting import RunReport as RunReport
    from .running import (
        HEARTBEAT_S as HEARTBEAT_S,
        RunOutcome as RunOutcome,
        first_line as first_line,
        run_package as run_package,
    )
    from .sample import sample_manifest as sample_manifest
    from .yaml_files import YamlFileError as YamlFileError

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
