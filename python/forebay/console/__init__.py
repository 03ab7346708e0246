"""A web page over a store: topics, messages, groups, dead letters, damage.

``forebay console STORE`` serves it. A program that has an ASGI server mounts it itself.

``pip install 'forebay[console]'`` installs Starlette and uvicorn.

Examples
--------
>>> import forebay.console
>>> with forebay.open(":memory:") as store:
...     console = forebay.console.Console(store)
...     console.close()
"""

from forebay.selection import require

require("starlette", "console")

from forebay.console.app import Console  # noqa: E402

__all__ = ["Console"]
