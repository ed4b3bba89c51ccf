"""The layout as a projection: events and records of the journal become raw files."""

from waybill.exporter.layout.projection import (
    Layout as Layout,
    open_layout as open_layout,
    write_again as write_again,
)
