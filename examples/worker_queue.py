"""Share work among threads: what fails is tried again, what keeps failing becomes a dead letter.

The workers are consumers of one group, so each job goes to one of them. A worker that dies before
it acknowledges a job loses nothing: the job is delivered again.
"""

import json
import tempfile
import threading
from pathlib import Path

import forebay

JOBS = 100
WORKERS = 4
ATTEMPTS = 2


class Mailer:
    """Stands for a service that fails now and then."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def send(self, address: str, attempt: int) -> None:
        if "@" not in address:
            raise ValueError(f"no address: {address}")
        if address.endswith("7@example.com") and attempt == 0:
            raise ConnectionError("the mail server is busy")
        self.sent.append(address)


def work(store: forebay.Store, mailer: Mailer, done: threading.Event) -> None:
    """Handle jobs until all are done."""
    with store.consumer("mails", group="mailers") as consumer:
        while not done.is_set():
            for job in consumer.poll(max_messages=10, timeout=0.1):
                try:
                    mailer.send(json.loads(job.body)["to"], job.reconsume_times)
                except ConnectionError as error:
                    if job.reconsume_times < ATTEMPTS:
                        # Level 1 is a second. Without a level the delay grows from 10 s to 2 h.
                        consumer.nack(job, delay_level=1)
                    else:
                        consumer.reject(job, reason=str(error))
                except ValueError as error:
                    # Trying again would not help.
                    consumer.reject(job, reason=str(error))
                else:
                    consumer.ack(job)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, forebay.open(Path(folder, "jobs")) as store:
        addresses = [f"user{number}@example.com" for number in range(JOBS)] + ["nobody"]
        bodies = [json.dumps({"to": address}).encode() for address in addresses]
        mails = store.producer("mails")
        for body in bodies:
            mails.send(body)

        mailer, done = Mailer(), threading.Event()
        workers = [
            threading.Thread(target=work, args=(store, mailer, done)) for _ in range(WORKERS)
        ]
        for worker in workers:
            worker.start()
        while len(mailer.sent) < JOBS or "%DLQ%mailers" not in store.topics:
            done.wait(0.05)
        done.set()
        for worker in workers:
            worker.join()

        print(f"{len(set(mailer.sent))} mails sent by {WORKERS} workers")
        for dead in store.tail("%DLQ%mailers", start="earliest", follow=False):
            print(f"dead letter: {dead.body.decode()}: {dead.properties['FOREBAY_REASON']}")
        waiting = sum(queue.lag for queue in store.groups["mailers"])
        print(f"{waiting} jobs are waiting")
        assert sorted(mailer.sent) == sorted(addresses[:-1])
        assert waiting == 0


if __name__ == "__main__":
    main()
