"""Files where Spark sees them: a local disk, HDFS, anything that Hadoop's file systems reach.

The driver's few file operations go through the JVM that is there anyway, so that a table may lie
wherever Spark can write it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from firearrow.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RECURSIVE: Final = True
_OVERWRITE: Final = True


class HadoopFiles:
    """One directory tree; paths are relative to its root, with '/'."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm = spark._jvm  # noqa: SLF001 - the only door to Hadoop's file systems
        if jvm is None:
            raise PipelineError("jobs need a session with its own JVM, not Spark Connect")
        self._path: Any = jvm.org.apache.hadoop.fs.Path
        configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001
        given = self._path(root)
        self._files: Any = given.getFileSystem(configuration)
        self.root: str = self._files.makeQualified(given).toString()

    def at(self, path: str) -> str:
        """The whole name, as Spark takes it."""
        return f"{self.root}/{path}" if path else self.root

    def _at(self, path: str) -> Any:  # noqa: ANN401 - Java's
        return self._path(self.at(path))

    def exists(self, path: str = "") -> bool:
        return bool(self._files.exists(self._at(path)))

    def names(self, path: str = "") -> list[str]:
        """Names of what lies directly in a directory; none if it is not there."""
        if not self.exists(path):
            return []
        return sorted(one.getPath().getName() for one in self._files.listStatus(self._at(path)))

    def below(self, path: str, suffix: str) -> list[tuple[str, int]]:
        """Files under a directory, at any depth: their paths relative to it, and their sizes."""
        if not self.exists(path):
            return []
        base = self._files.makeQualified(self._at(path)).toUri().getPath()
        found, listing = [], self._files.listFiles(self._at(path), _RECURSIVE)
        while listing.hasNext():
            status = listing.next()
            name = str(status.getPath().toUri().getPath())
            if name.endswith(suffix):
                found.append((name[len(base) + 1 :], int(status.getLen())))
        return sorted(found)

    def make_directory(self, path: str) -> None:
        self._files.mkdirs(self._at(path))

    def rename(self, source: str, target: str) -> None:
        if not self._files.rename(self._at(source), self._at(target)):
            raise PipelineError(f"{self.at(source)} cannot be renamed to {self.at(target)}")

    def delete(self, path: str) -> None:
        self._files.delete(self._at(path), _RECURSIVE)

    def read(self, path: str) -> bytes:
        stream = self._files.open(self._at(path))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write_atomically(self, path: str, content: bytes) -> None:
        """A new file: all of it or nothing, also if this process is killed meanwhile."""
        temporary = f"{path}.tmp"
        stream = self._files.create(self._at(temporary), _OVERWRITE)
        try:
            stream.write(content)
            stream.hsync()
        finally:
            stream.close()
        self.rename(temporary, path)
