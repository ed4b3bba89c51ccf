"""PySpark's builder, session and context, with tracking.

The user's objects are PySpark's own. They get one of these classes after they were created, because PySpark
offers no other hook for the start and the end of an application.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Final, cast

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from waybill.facets.annotations import ALL
from waybill.facets.overrides import PROPERTY_PREFIX
from waybill.transport import Settings

from ..errors import SparkSetupError
from ..runtime import (
    LISTENER_CLASS,
    fetch_listener,
    find_java,
    formats_not_followed,
    spark_defaults,
    spark_home,
)
from . import listener_options
from .application import Application, begin
from .exit_status import ProgramFailure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("waybill.spark")

_CALL: Final = re.compile(r"\s*CALL\s+([\w.`]+)", re.IGNORECASE)
_called: Final[set[str]] = set()
"""The procedures that were warned of."""
_CONNECT: Final = (
    "a Spark Connect session has its listener in its server; "
    "create it with waybill.spark.session(…, remote=…), or use spark.master"
)


def track(
    builder: SparkSession.Builder,
    *,
    tags: Mapping[str, str],
    endpoint: str | None,
    given: Mapping[str, object],
) -> SparkSession.Builder:
    """Turn a builder into one of tracked sessions; see `waybill.spark.configure`."""
    if not isinstance(builder, SparkSession.Builder):
        raise SparkSetupError(_CONNECT)
    tracked = cast("TrackedBuilder", builder)
    tracked.__class__ = TrackedBuilder
    tracked.waybill_settings = Settings.load(given, origin="waybill.spark", goes_on=True)
    tracked.waybill_given = frozenset(given)
    tracked.waybill_tags = tags
    tracked.waybill_endpoint = endpoint
    return tracked


class TrackedBuilder(SparkSession.Builder):
    """A builder whose sessions are tracked."""

    waybill_settings: Settings
    waybill_given: frozenset[str]
    waybill_tags: Mapping[str, str]
    waybill_endpoint: str | None

    def getOrCreate(self) -> SparkSession:  # noqa: N802 - PySpark's name
        """Get the running session if it is tracked, or create one."""
        running = SparkContext._active_spark_context  # noqa: SLF001 - PySpark offers no other question
        if running is not None:
            self._check(running)
            return super().getOrCreate()
        self._refuse_connect()
        given = dict(self._options)
        try:
            return self._begin() if self.waybill_endpoint is None else self._make(self.waybill_endpoint)
        finally:
            # The same builder may create another session later, which is another run of the application.
            self._options = given

    def _check(self, running: SparkContext) -> None:
        if isinstance(running, TrackedContext):
            theirs, given = running.waybill.settings, running.waybill.given
            for name in sorted(self.waybill_given):
                # A value that the home's overrides counts as the same.
                known = getattr(theirs, name), getattr(given, name)
                if getattr(self.waybill_settings, name) not in known:
                    what = f"the running session is tracked with {name} = {theirs.shown(name)}"
                    raise SparkSetupError(f"{what}; stop it first, or use the same value")
        elif self.waybill_endpoint is None or LISTENER_CLASS not in running.getConf().get(
            listener_options.LISTENERS, ""
        ):
            what = "an untracked Spark session is already running"
            raise SparkSetupError(f"{what}; stop it, or create it with waybill.spark, too")

    def _refuse_connect(self) -> None:
        remote = {"SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"} & os.environ.keys()
        if remote or "spark.remote" in self._options or self._options.get("spark.api.mode") == "connect":
            raise SparkSetupError(_CONNECT)

    def _begin(self) -> SparkSession:
        application = Application(self.waybill_settings, self._given("spark.app.name") or "spark")
        try:
            session = self._make(application.url, {listener_options.APPLICATION_RUN: application.run_id})
        except BaseException:
            application.discard()
            raise
        context = cast("TrackedContext", session.sparkContext)
        context.__class__ = TrackedContext
        context.waybill = application
        session.__class__ = TrackedSession
        application.attach(session)
        if not_followed := formats_not_followed(dict(context.getConf().getAll())):
            log.warning("%s", not_followed)
        begin(application, context.stop)
        return session

    def _make(self, url: str, more: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
        jar = fetch_listener()
        _load(self._jvm(), jar)
        wanted = {**more} | listener_options.listener_options(
            self._given,
            url=url,
            namespace=self.waybill_settings.system_name,
            names=self._property_names(),
            tags=self.waybill_tags,
        )
        given = {name: self._given(name) for name in wanted}
        for name, value in wanted.items():
            self.config(name, value)
        session = super().getOrCreate()
        _reset(_running_jvm(), given)
        return session

    def _jvm(self) -> Any:  # noqa: ANN401 - py4j's view of Java, where every name is an attribute
        """The JVM to load the listener into, started if there is none yet.

        Spark loads the user's JARs with a class loader below that of the class path, whose listener would not
        see their catalogs. That loader exists once a JVM runs.
        """
        if _running_jvm() is None:
            os.environ["JAVA_HOME"] = str(find_java().home)
            options = SparkConf(loadDefaults=False).setAll(list(self._options.items()))
            SparkContext._ensure_initialized(conf=options)  # noqa: SLF001 - PySpark starts a JVM in no other way
        return _running_jvm()

    def _given(self, name: str) -> str | None:
        """The user's value of an option: from the builder, spark-submit or ``spark-defaults.conf``."""
        if name in self._options:
            return str(self._options[name])
        if (jvm := _running_jvm()) is not None:
            value = jvm.java.lang.System.getProperty(name)
            return None if value is None else str(value)
        return spark_defaults(spark_home()).get(name)

    def _property_names(self) -> set[str]:
        prefix = PROPERTY_PREFIX
        names = {name.removeprefix(prefix) for name in self._options if name.startswith(prefix)}
        return (names | self.waybill_settings.provenance_annotations_allowed) - {ALL}


class TrackedSession(SparkSession):
    """A session whose application fails when an exception leaves its block."""

    def sql(self, sqlQuery: str, *args: Any, **named: Any) -> DataFrame:  # noqa: ANN401, N803 - PySpark's
        """Execute a statement, and warn of a procedure of which Spark keeps no execution."""
        called = _CALL.match(sqlQuery)
        if called is not None and not self.version.startswith("3.") and called[1] not in _called:
            _called.add(called[1])
            log.warning("Spark keeps no execution of CALL %s: what it commits may have no record", called[1])
        return super().sql(sqlQuery, *args, **named)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """Stop Spark; an exception is the reason why the application failed."""
        failure = None if exc_val is None else ProgramFailure.of_exception(exc_val)
        if failure is not None:
            cast("TrackedContext", self.sparkContext).waybill.fail(failure)
        super().__exit__(exc_type, exc_val, exc_tb)


class TrackedContext(SparkContext):
    """A context that settles all final states before it stops."""

    waybill: Application

    def stop(self) -> None:
        """Stop Spark; further calls do nothing."""
        if getattr(self, "_jsc", None) is None:
            super().stop()
            return
        self.waybill.stopping()
        try:
            super().stop()
        finally:
            self.waybill.stopped()


def _running_jvm() -> Any:  # noqa: ANN401 - as above
    """The JVM that spark-submit or an earlier session started; None if there is none yet."""
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:  # noqa: SLF001 - as above
        return None
    SparkContext._ensure_initialized()  # noqa: SLF001
    return SparkContext._jvm  # noqa: SLF001


def _load(jvm: Any, jar: Path) -> None:  # noqa: ANN401 - as above
    """Add the JAR to the class path of a running JVM, as spark-submit itself adds JARs."""
    listener = LISTENER_CLASS.replace(".", "/") + ".class"
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    if loader.getResource(listener) is None:
        loader.addURL(jvm.java.net.URL(jar.as_uri()))
    elif jvm.java.lang.System.getProperty("spark.jars") and _class_path_has(jvm, listener):
        log.warning(
            "the OpenLineage listener is on the driver's class path and cannot see the JARs of spark.jars, "
            "so records of writes to their catalogs may lack the output; put its JAR in spark.jars instead"
        )


def _class_path_has(jvm: Any, resource: str) -> bool:  # noqa: ANN401 - as above
    return jvm.java.lang.ClassLoader.getSystemClassLoader().getResource(resource) is not None


def _reset(jvm: Any, given: Mapping[str, str | None]) -> None:  # noqa: ANN401 - as above
    """Restore the user's options: a JVM hands its options on to the next session, tracked or not."""
    system = jvm.java.lang.System
    for name, value in given.items():
        if value is None:
            system.clearProperty(name)
        else:
            system.setProperty(name, value)
