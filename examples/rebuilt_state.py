"""Keep the state of a service in a compacted topic, and rebuild it after the service was killed.

A service writes each change to the topic before it takes effect. Its process is killed here while
it does so. Another one reads the topic, has all that was acknowledged, and compacts it.
"""

import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import forebay

ACCOUNTS = 10
DEPOSITS = 300


class Accounts:
    """Balances by account, which outlive the process."""

    def __init__(self, path: Path) -> None:
        # The segment in use is never compacted, so segments are small where the state is small.
        self.store = forebay.open(
            path,
            engine="partitionlog",
            cleanup_policy={"balances": "compact"},
            segment_bytes=4096,
            flush="sync",
        )
        self.store.create_topic("balances", queues=1)
        self.balances: dict[str, int] = {}
        for message in self.messages():
            self.balances[message.key or ""] = json.loads(message.body)

    def messages(self) -> list[forebay.Message]:
        return list(self.store.tail("balances", start="earliest", follow=False))

    def deposit(self, account: str, amount: int) -> None:
        balance = self.balances.get(account, 0) + amount
        # On disk on return.
        self.store.send("balances", json.dumps(balance).encode(), key=account)
        self.balances[account] = balance


def serve(path: Path) -> None:
    """Deposit without end, and print each balance that is on disk."""
    accounts = Accounts(path)
    for number in itertools.count():
        account = f"account-{number % ACCOUNTS}"
        accounts.deposit(account, number)
        print(account, accounts.balances[account], flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "accounts")
        acknowledged: dict[str, int] = {}
        command = [sys.executable, __file__, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
            assert service.stdout is not None
            for line in itertools.islice(service.stdout, DEPOSITS):
                account, balance = line.split()
                acknowledged[account] = int(balance)
            service.kill()
        print(f"killed the service after {DEPOSITS} deposits")

        accounts = Accounts(path)
        assert len(acknowledged) == ACCOUNTS
        for account, balance in acknowledged.items():
            # It may have deposited more before it died.
            assert accounts.balances[account] >= balance
        print(f"rebuilt {len(accounts.balances)} balances from {len(accounts.messages())} messages")

        # The thread of the store does this for complete segments, every 15 seconds.
        accounts.store.roll()
        accounts.store.compact("balances")
        print(f"{len(accounts.messages())} messages are left after compaction")
        assert len(accounts.messages()) == ACCOUNTS
        before = accounts.balances
        accounts.store.close()

        again = Accounts(path)
        assert again.balances == before
        again.deposit("account-0", 5)
        assert again.balances["account-0"] == before["account-0"] + 5
        again.store.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve(Path(sys.argv[1]))
    else:
        main()
