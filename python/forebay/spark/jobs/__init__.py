"""Long work over a store, cut into ranges of its files and done by a Spark cluster.

`audit` checks everything, `rebuild` builds queues and index from the log. Each takes a session and
the directory of a store that every worker reaches under the same path, and returns its figures.
"""

from __future__ import annotations

from forebay.spark.jobs.audit import Audit, audit
from forebay.spark.jobs.rebuild import Rebuild, rebuild

__all__ = [
    "Audit",
    "Rebuild",
    "audit",
    "rebuild",
]
