"""The server process: granian, its workers, and the runner beside them."""

from waybill.collector.server.server import serve as serve, stop as stop
