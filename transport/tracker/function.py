"""A function whose calls are runs, such as one that a serverless platform calls for each event."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

from .datasets import dataset_of
from .file_run import failure_of
from .job_run import ToldRun, Uses

if TYPE_CHECKING:
    from .datasets import Dataset, DatasetName
    from .tracker import Tracker

_P = ParamSpec("_P")
_T = TypeVar("_T")

_EVENT_ID: Final = "event_id"


def tracked(
    *,
    inputs: Iterable[DatasetName] | Callable[..., Iterable[DatasetName]] = (),
    outputs: Iterable[DatasetName] | Callable[..., Iterable[DatasetName]] = (),
    event_id: Callable[..., object] | None = None,
    job: str = "",
    tracker: Tracker | None = None,
) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Make each call of a function, sync or async, a run: it begins, and it succeeds or fails.

    An event is on disk before the function goes on, which takes about a millisecond, also of an event loop.

        @waybill.tracked(
            inputs=lambda event, context: [event["source"]],
            outputs=["s3://lake/thumbnails"],
            event_id=lambda event, context: event["id"],
        )
        def handle(event, context): ...

    Args:
        inputs: the datasets that it reads, each a path, a URI, or a namespace and a name; or a function of
            its arguments that gives them.
        outputs: those that it writes; a function gets the result first, and then the arguments.
        event_id: a function of its arguments that gives the id of the event; the run has it as a tag.
        job: the job's name; empty: the function's.
        tracker: keeps the events; None: one that the process shares.

    Raises:
        AdmissionError: a dataset has no name.
        JournalError: an event could not be kept.
    """

    def decorate(function: Callable[_P, _T]) -> Callable[_P, _T]:
        name = job or f"{function.__module__}.{function.__qualname__}"

        @contextlib.contextmanager
        def call(arguments: tuple[Any, ...], named: dict[str, Any]) -> Iterator[list[Any]]:
            """The run of a call; its result is put into the list."""
            home, result = tracker or _shared(), list[Any]()
            run = ToldRun(home.emit, home.system_name, name, "FUNCTION")
            read: Uses = dict.fromkeys(_named(inputs, *arguments, **named))
            tags = {} if event_id is None else {_EVENT_ID: event_id(*arguments, **named)}
            run.tell("START", inputs=read, tags=tags)
            try:
                yield result
                written: Uses = dict.fromkeys(_named(outputs, *result, *arguments, **named))
            except BaseException as error:
                kind = "FAIL" if isinstance(error, Exception) else "ABORT"
                run.tell(kind, inputs=read, failure=failure_of(error), tags=tags)
                raise
            run.tell("COMPLETE", inputs=read, outputs=written, tags=tags)

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*arguments: _P.args, **named: _P.kwargs) -> Any:  # noqa: ANN401 - the function's
                with call(arguments, named) as result:
                    result.append(await function(*arguments, **named))
                return result[0]

            return awaited  # type: ignore[return-value]

        @functools.wraps(function)
        def called(*arguments: _P.args, **named: _P.kwargs) -> _T:
            with call(arguments, named) as result:
                result.append(function(*arguments, **named))
            return cast("_T", result[0])

        return called

    return decorate


def _named(given: Any, *arguments: Any, **named: Any) -> list[Dataset]:  # noqa: ANN401 - of any function
    return [dataset_of(one) for one in (given(*arguments, **named) if callable(given) else given)]


@functools.cache
def _shared() -> Tracker:
    from .tracker import Tracker

    return Tracker()
