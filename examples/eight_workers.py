"""Eight processes consume the jobs of one store, while the parent sends them.

Each job goes to one of the processes. One of them is killed on the way: the others get its queues,
and whatever it had not acknowledged.
"""

import multiprocessing
import os
import tempfile
from pathlib import Path

import forebay

WORKERS = 8
QUEUES = 16
JOBS = 4_000


def work(directory: str) -> None:
    """Handle jobs until SIGTERM comes; each result goes to another topic."""
    with forebay.open(directory, mode="share") as store:
        results = store.producer("results")

        def square(job: forebay.Message) -> None:
            number = int(job.body)
            results.send(b"%d %d %d" % (number, number**2, os.getpid()))

        with store.consumer("jobs", group="workers") as consumer:
            # Acknowledges each job for which the function returns.
            consumer.run(square)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "store")
        with forebay.open(path, mode="share", default_queues=QUEUES) as store:
            store.create_topic("results", queues=1)
            context = multiprocessing.get_context("spawn")
            workers = [
                context.Process(target=work, args=(path,), daemon=True) for _ in range(WORKERS)
            ]
            for worker in workers:
                worker.start()

            jobs = store.producer("jobs")
            jobs.send_batch([b"%d" % number for number in range(JOBS // 2)])
            found: dict[int, int] = {}
            with store.tail("results", start="earliest") as tail:
                for result in tail:
                    number, square, _ = map(int, result.body.split())
                    found[number] = square
                    if len(found) == JOBS // 4 and workers[0].is_alive():
                        workers[0].kill()
                        jobs.send_batch([b"%d" % number for number in range(JOBS // 2, JOBS)])
                    if len(found) == JOBS:
                        break
            for worker in workers:
                worker.terminate()
                worker.join()
            print(f"{len(found)} jobs done by {WORKERS} processes, of which one was killed")
            assert found == {number: number**2 for number in range(JOBS)}


if __name__ == "__main__":
    main()
