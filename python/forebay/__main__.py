"""``python -m forebay``: the command line."""

import sys

from forebay import _as_program
from forebay_command import run

if __name__ == "__main__":
    sys.exit(run(_as_program.waits))
