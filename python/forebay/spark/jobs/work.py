"""Running the tasks of a job: one Spark task each, with progress and the original errors.

A plain Python function works in a classic session and through Spark Connect, and needs no Pandas.
`spark.range` gives each task its own partition without a shuffle.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pickle
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from forebay import Store
from forebay.errors import ForebayError, UnknownTopicError
from forebay.options import Progress
from forebay.spark.errors import must
from forebay.spark.plan import is_system_topic, parallelism, processors
from forebay.spark.ranges import Range
from forebay.spark.source import register
from forebay.spark.stores import OPENED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from forebay import Topic

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

#: Seconds between two reports of progress.
_REPORT_INTERVAL = 0.2


def run(
    spark: SparkSession,
    tasks: Sequence[_Task],
    work: Callable[[_Task], _Result],
    progress: Progress | None = None,
) -> list[_Result]:
    """Run `work` on every task in one Spark job, and return the results in task order.

    Tasks, results and `work` are pickled; `work` must be a function of a module that the workers
    have. A task may run twice, even at the same time; what it writes must not depend on that.

    Raises
    ------
    ForebayError, OSError
        What `work` raised. Other errors are left to Spark, which retries the task.
    """
    from pyspark.sql.functions import udf
    from pyspark.sql.types import BinaryType

    if not tasks:
        return []

    def run_task(number: int) -> bytes:
        try:
            outcome: object = work(tasks[number])
        except (ForebayError, OSError) as error:
            outcome = error
        return pickle.dumps(outcome)

    # A nondeterministic function is called exactly once per row, whatever Spark optimizes.
    call = udf(run_task, BinaryType(), useArrow=False).asNondeterministic()
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    frame = numbers.select("id", call("id").alias("outcome"))
    with reporting(spark, progress):
        rows = frame.collect()
    # The pickles come from Spark's own workers, which Spark itself trusts in the same way.
    outcomes = {row["id"]: pickle.loads(row["outcome"]) for row in rows}
    for number in range(len(tasks)):
        if isinstance(outcomes[number], (ForebayError, OSError)):
            raise outcomes[number]
    return [outcomes[number] for number in range(len(tasks))]


@contextlib.contextmanager
def reporting(spark: SparkSession, progress: Progress | None) -> Iterator[None]:
    """Report the progress of the jobs that this thread starts; not in a remote session."""
    from pyspark.errors import PySparkException

    try:
        context = None if progress is None else spark.sparkContext
    except (AttributeError, PySparkException):
        context = None
    if context is None or progress is None:
        yield
        return
    group = f"forebay-{uuid.uuid4().hex}"
    names = ("spark.jobGroup.id", "spark.job.description")
    before = [context.getLocalProperty(name) for name in names]
    context.setJobGroup(group, "forebay")
    tracker, done, tell = context.statusTracker(), threading.Event(), progress

    def watch() -> None:
        while not done.wait(_REPORT_INTERVAL):
            completed = total = 0
            for job in tracker.getJobIdsForGroup(group):
                found = tracker.getJobInfo(job)
                for stage in found.stageIds if found else ():
                    state = tracker.getStageInfo(stage)
                    completed += state.numCompletedTasks if state else 0
                    total += state.numTasks if state else 0
            if total:
                tell(completed, total)

    watcher = threading.Thread(target=watch, name="forebay-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        for name, value in zip(names, before, strict=True):
            context.setLocalProperty(name, value)  # type: ignore[arg-type]


def tasks_at_once(spark: SparkSession) -> int:
    """Return how many tasks the session runs at once; in a remote session, a guess."""
    return parallelism(spark) or processors()


def grouped(weights: Sequence[int], groups_wanted: int, weight_min: int) -> list[list[int]]:
    """Group adjacent numbers of ``range(len(weights))``; return the heaviest group first.

    A group of more than one number weighs at most `weight_min`, or an equal share for
    `groups_wanted` groups if that is more.
    """
    limit = max(weight_min, sum(weights) // max(groups_wanted, 1))
    groups: list[list[int]] = []
    sums: list[int] = []
    for number, weight in enumerate(weights):
        if groups and sums[-1] + weight <= limit:
            sums[-1] += weight
            groups[-1].append(number)
        else:
            sums.append(weight)
            groups.append([number])
    return [groups[place] for place in sorted(range(len(groups)), key=lambda at: -sums[at])]


def named_topics(topics: Iterable[str] | None) -> list[str] | None:
    """Return the topics that a caller names, sorted; `None` means all.

    Raises
    ------
    InvalidOptionError
        If `topics` is one string: each letter would be taken for a topic.
    """
    if isinstance(topics, str):
        raise must("topics", topics, f"be a list of topics, such as [{topics!r}]")
    return None if topics is None else sorted(set(topics))


def chosen_topics(store: Store, named: list[str] | None) -> dict[str, Topic]:
    """Return the named topics of a store, or all but system topics.

    Raises
    ------
    UnknownTopicError
        If the store lacks a named topic.
    """
    there = store.topics
    if named is None:
        named = [name for name in sorted(there) if not is_system_topic(name)]
    for name in named:
        if name not in there:
            message = f"there is no topic {name!r} in {store.path}"
            raise UnknownTopicError(message, topic=name)
    return {name: there[name] for name in named}


@contextlib.contextmanager
def alone(folder: str, place: str, what: str) -> Iterator[None]:
    """Create a job's folder and hold its lock; the kernel releases it if the process dies.

    Raises
    ------
    BlockingIOError
        If another job holds the lock, in this process or in another one.
    """
    # Imported here, because not every platform has fcntl.
    import fcntl

    os.makedirs(folder, exist_ok=True)
    with contextlib.ExitStack() as held:
        try:
            file = held.enter_context(open(os.path.join(folder, "lock"), "ab"))
            # flock locks this handle; lockf would lock for the whole process.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The previous holder may have removed the folder between any two of these calls.
            is_ours = os.fstat(file.fileno()).st_nlink > 0
        except (BlockingIOError, FileNotFoundError):
            is_ours = False
        if not is_ours:
            message = f"another {what} to this directory is running"
            raise BlockingIOError(errno.EAGAIN, message, place)
        yield


def read_ranges(
    spark: SparkSession,
    root: str,
    ranges: Iterable[Range],
    columns: str,
    *,
    fail_on_data_loss: bool,
) -> DataFrame:
    """Return columns of the messages in these ranges, at most one range per queue.

    Explicit ranges let two reads of a store that is being written end at the same messages.
    """
    register(spark)
    queues: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for found in ranges:
        queues.setdefault(found.topic, []).append(found.queue)
        starts.setdefault(found.topic, {})[str(found.queue)] = found.start
        ends.setdefault(found.topic, {})[str(found.queue)] = found.end
    reader = spark.read.format("forebay").option("columns", columns)
    reader = reader.option("assign", json.dumps(queues))
    reader = reader.option("startingOffsets", json.dumps(starts))
    reader = reader.option("endingOffsets", json.dumps(ends))
    return reader.option("failOnDataLoss", str(fail_on_data_loss).lower()).load(root)


def opened(token: str, path: str) -> Store:
    """Return the store at a path, opened once per worker for all tasks of the job `token`.

    Opening may be expensive: the log of a crashed broker is read from its beginning.
    """
    store = OPENED.store("job", path, token)
    assert isinstance(store, Store)
    return store
