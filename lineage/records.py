"""The records of an answer: a list of them that can also be had as a table."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from waybill.facets import ProvenanceRecord
from waybill.transport import WaybillError


class MissingPackageError(WaybillError):
    """A method needs a package that is not installed.

    Args:
        what: the method.
        package: the package, by the name that pip knows.
    """

    def __init__(self, what: str, package: str) -> None:
        super().__init__(what, package)
        self.what = what
        self.package = package

    def __str__(self) -> str:
        return f"{self.what} needs the package {self.package}: pip install {self.package}"


class Records(list[ProvenanceRecord]):
    """Records in a list. As a table they have the columns that the Parquet files have, in the same order.

    Attributes:
        notes: sentences about what the answer lacks, and what stands beside it.
    """

    notes: tuple[str, ...] = ()

    def to_arrow(self) -> Any:  # noqa: ANN401 - pyarrow has no types
        """A `pyarrow.Table`."""
        import pyarrow as pa

        from waybill.facets.arrow import to_table, to_tables

        return pa.concat_tables([to_table([]), *to_tables(self)])

    def to_pandas(self) -> Any:  # noqa: ANN401 - pandas is not a dependency, so neither are its types
        """A `pandas.DataFrame`; the annotations of a record are a dict.

        Raises:
            MissingPackageError: pandas is not installed.
        """
        load_package("to_pandas", "pandas")
        return self.to_arrow().to_pandas(maps_as_pydicts="strict")

    def to_polars(self) -> Any:  # noqa: ANN401 - polars is not a dependency, so neither are its types
        """A `polars.DataFrame`.

        Raises:
            MissingPackageError: polars is not installed.
        """
        return load_package("to_polars", "polars").from_arrow(self.to_arrow())


def load_package(what: str, package: str) -> Any:  # noqa: ANN401 - a module without types here
    """A package that is no dependency; raises a `MissingPackageError` for the method `what`."""
    try:
        return import_module(package)
    except ModuleNotFoundError:
        raise MissingPackageError(what, package) from None
