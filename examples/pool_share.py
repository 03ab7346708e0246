"""Let the processes of a pool send to one store, which the parent reads meanwhile.

The store is open before the pool forks or spawns its workers; each worker uses a handle of its own.
"""

import multiprocessing
import tempfile
from pathlib import Path

import forebay

WORKERS = 4
TASKS = 40
ROWS = 25


def measure(directory: str, task: int) -> int:
    """Send the results of a task; return their number. Runs in a worker."""
    with forebay.open(directory, mode="share") as store:
        rows = [b"task %d row %d" % (task, row) for row in range(ROWS)]
        return store.producer("results").send_batch(rows, atomic=True).count


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory) / "results")
        with (
            forebay.open(path, mode="share") as store,
            multiprocessing.get_context("spawn").Pool(WORKERS) as pool,
        ):
            tasks = [(path, task) for task in range(TASKS)]
            sent = sum(pool.starmap(measure, tasks))
            queues = store.topics["results"].queues
            stored = sum(queue.max_offset for queue in queues)
            print(f"{WORKERS} processes sent {sent} results, of which {stored} are in the store")
            assert sent == stored == TASKS * ROWS


if __name__ == "__main__":
    main()
