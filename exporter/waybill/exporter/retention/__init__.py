"""Retention: what is old enough goes, from the layout and from the archive."""

from waybill.exporter.retention.archive import age_off_archive as age_off_archive
from waybill.exporter.retention.layout import AgedOff as AgedOff, age_off as age_off
