"""A Parquet table in which every batch of a stream lands exactly once, for any reader.

Spark's own file sink keeps a list of good files that only Spark reads; others would see what a
killed batch left behind. So a batch lands in two steps, with one decision between them:

    1. rows   → _staging/QUERY-BATCH/…          hidden: readers skip names that begin with "_"
    2. decide → _batches/QUERY/BATCH.json       the list of moves; from here on the batch counts
    3. move   → column=value/QUERY-BATCH-N.parquet

Killed before 2, the batch is written again from its beginning (Spark runs a batch again with the
same offsets). Killed after 2, the moves are finished and nothing is written again. It rests on
Spark's checkpoint, on renames that happen or do not, and on one writer per checkpoint.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from firearrow.pipeline.errors import PipelineError
from firearrow.pipeline.hadoop_files import HadoopFiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

BATCHES: Final = "_batches"
STAGING: Final = "_staging"
CHECKPOINT: Final = "_checkpoint"
KEPT_DECISIONS: Final = 20  # Spark runs at most the last batch again


@dataclass(frozen=True, slots=True)
class Landed:
    """One batch in the table."""

    batch: int
    rows: int
    files: int
    size_bytes: int
    repeated: bool  # it was decided before; at most its moves were finished now


class Landing:
    """Writes batches into the table at `table`; hand `write` to `foreachBatch`.

    Args:
        spark: The session; the table may lie wherever it can write.
        table: The table's directory.
        partition_by: Columns that become directories.
        compression: Of the Parquet files: snappy, zstd, gzip or uncompressed.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: str,
        *,
        partition_by: Sequence[str] = (),
        compression: str = "snappy",
    ) -> None:
        self._files = HadoopFiles(spark, table)
        self._partition_by = list(partition_by)
        self._compression = compression
        self.landed: list[Landed] = []

    @property
    def checkpoint(self) -> str:
        """Where the stream's checkpoint lies unless another place is wanted."""
        return self._files.at(CHECKPOINT)

    def check_owner(self, spark: SparkSession, checkpoint: str) -> None:
        """Refuse a table that a stream with another checkpoint has written.

        It would read its topics from the beginning again, and every row would be there twice.
        """
        owners = self._files.names(BATCHES)
        query = query_of(spark, checkpoint)
        others = [owner for owner in owners if owner != query]
        if others:
            raise PipelineError(
                f"{self._files.root} was written from another checkpoint (query {others[0]}); "
                f"{checkpoint} would write its rows again. Go on with that checkpoint, or name "
                "another table"
            )

    def write(self, frame: DataFrame, batch: int) -> None:
        """Land one batch; twice or ten times does the same as once."""
        query = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        if query is None:
            raise PipelineError("a batch of no stream: Landing.write belongs into foreachBatch")
        decision = f"{BATCHES}/{query}/{batch:010d}.json"
        staging = f"{STAGING}/{query}-{batch}"
        repeated = self._files.exists(decision)
        if not repeated:
            self._stage(frame, staging, decision, query, batch)
        self._finish(decision, staging, batch, repeated=repeated)
        self._forget(query, batch)

    def _stage(self, frame: DataFrame, staging: str, decision: str, query: str, batch: int) -> None:
        from pyspark.sql import Observation  # noqa: PLC0415 - only who runs a job pays
        from pyspark.sql import functions as f  # noqa: PLC0415

        self._files.delete(staging)
        counted = Observation()
        writer = frame.observe(counted, f.count(f.lit(1)).alias("rows")).write.mode("overwrite")
        if self._partition_by:
            writer = writer.partitionBy(*self._partition_by)
        writer.parquet(self._files.at(staging), compression=self._compression)
        rows = int(counted.get["rows"])
        written = self._files.below(staging, ".parquet") if rows else []
        moves = [
            (path, f"{_folder(path)}{query[:8]}-{batch:010d}-{number:05d}.parquet")
            for number, (path, _) in enumerate(written)
        ]
        content = {
            "query": query,
            "batch": batch,
            "rows": rows,
            "bytes": sum(size for _, size in written),
            "moves": moves,
        }
        self._files.make_directory(f"{BATCHES}/{query}")
        self._files.write_atomically(decision, json.dumps(content).encode())

    def _finish(self, decision: str, staging: str, batch: int, *, repeated: bool) -> None:
        content = json.loads(self._files.read(decision))
        if self._files.exists(staging):  # gone, if a run before us got that far
            for source, target in content["moves"]:
                if self._files.exists(f"{staging}/{source}"):
                    self._files.make_directory(_folder(target).rstrip("/"))
                    self._files.rename(f"{staging}/{source}", target)
            self._files.delete(staging)
        self.landed.append(
            Landed(batch, content["rows"], len(content["moves"]), content["bytes"], repeated)
        )

    def _forget(self, query: str, batch: int) -> None:
        old = f"{max(0, batch - KEPT_DECISIONS):010d}.json"
        for name in self._files.names(f"{BATCHES}/{query}"):
            if name < old:
                self._files.delete(f"{BATCHES}/{query}/{name}")


def query_of(spark: SparkSession, checkpoint: str) -> str | None:
    """The id of the query that a checkpoint belongs to; None if there is none yet."""
    files = HadoopFiles(spark, checkpoint)
    if not files.exists("metadata"):
        return None
    metadata = json.loads(files.read("metadata"))
    return str(metadata["id"])


def _folder(path: str) -> str:
    """What is before the last '/', with it; nothing if there is none."""
    head, slash, _ = path.rpartition("/")
    return head + slash
