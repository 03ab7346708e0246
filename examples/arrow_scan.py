"""Read a topic as Arrow: pyarrow, Polars and DuckDB over the same bytes.

A scan exports ``__arrow_c_stream__``, so every Arrow library can read it. With
``body_type="binary_view"`` the bodies are not copied: Arrow's buffers are the mapped log files.
"""

import json
import tempfile
from pathlib import Path

import duckdb
import polars
import pyarrow

import forebay

CITIES = ("Basel", "Bergen", "Brno")


def fill(store: forebay.Store) -> None:
    """Send readings as an Arrow table with columns for body, key and tags."""
    rows = range(30_000)
    table = pyarrow.table(
        {
            "body": [json.dumps({"n": row, "degrees": row % 40 - 10}) for row in rows],
            "key": [f"sensor-{row % 100}" for row in rows],
            "tags": [CITIES[row % 3] for row in rows],
        }
    )
    bodies = table["body"].cast(pyarrow.binary())
    store.producer("readings").send_arrow(table.set_column(0, "body", bodies))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, forebay.open(Path(folder, "edge")) as store:
        fill(store)

        # Columns that are not requested cost nothing, and filters run before Arrow data is built.
        scan = store.scan("readings", columns=["queue", "offset", "body"], tags="Bergen")
        table = pyarrow.table(scan)
        print(f"pyarrow: {table.num_rows} rows of Bergen, {table.nbytes} bytes")

        # A scan only describes what to read: each use of it reads the store again.
        frame = polars.DataFrame(store.scan("readings", columns=["tags", "body"]))
        degrees = polars.col("body").cast(polars.String).str.json_path_match("$.degrees")
        by_city = frame.group_by("tags").agg(degrees.cast(polars.Int32).mean()).sort("tags")
        print(f"Polars: mean by city {by_city.rows()}")

        # DuckDB finds the variable by its name. No body is copied on the way to it.
        readings = store.scan(  # noqa: F841
            "readings", columns=["keys", "body"], body_type="binary_view"
        )
        query = "select keys, count(*) from readings group by keys order by keys limit 2"
        counts = duckdb.execute(query).fetchall()
        print(f"DuckDB: {counts}")

    assert table.num_rows == 10_000
    assert counts == [("sensor-0", 300), ("sensor-1", 300)]


if __name__ == "__main__":
    main()
