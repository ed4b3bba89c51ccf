"""`waybill endpoint`: a place for Spark's listener to send to, where no driver of ours hosts one."""

from __future__ import annotations

import contextlib
import signal
import threading

from waybill.cli import console
from waybill.cli.options import EVERY, with_settings
from waybill.transport import Journal, Settings
from waybill.transport.keeper import Keeper
from waybill.transport.receiver import Receiver


@with_settings(*EVERY)
def endpoint(settings: Settings) -> None:
    """Take OpenLineage events over HTTP until SIGTERM or Ctrl-C.

    For plain spark-submit and anything else that sends OpenLineage over HTTP. An event is answered once it is
    durable, and a backend that is down changes nothing for the sender. A runner is started beside it.

    Examples:

    \b
      waybill endpoint --listen 127.0.0.1:8090 --provenance-enabled
      spark-submit --packages io.openlineage:openlineage-spark_2.13:1.53.0 \\
        --conf spark.extraListeners=io.openlineage.spark.agent.OpenLineageSparkListener \\
        --conf spark.openlineage.transport.type=http \\
        --conf spark.openlineage.transport.url=http://127.0.0.1:8090 job.py
    """
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    journal = Journal(settings.home, max_bytes=settings.journal_max_bytes)
    with contextlib.closing(journal):
        keeper = Keeper(journal, settings)
        host, _, port = settings.listen.rpartition(":")
        receiver = Receiver(
            journal,
            system_name=settings.system_name,
            host=host.strip("[]"),
            port=int(port),
            on_event=lambda _: keeper.keep(),
        )
        receiver.start()
        with contextlib.closing(receiver):
            console.line(f"listening at {receiver.url}, keeping events in {journal.path}")
            stop.wait()
