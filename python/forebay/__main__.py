"""``python -m forebay``: the command line."""

import sys

from forebay.cli import main

if __name__ == "__main__":
    sys.exit(main())
