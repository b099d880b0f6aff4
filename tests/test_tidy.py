"""The rules of the house that a machine can check. ARCHITECTURE.md says why they are there."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parent.parent
PACKAGE: Final = ROOT / "src" / "firearrow"
FILE_LINES_MAX: Final = 600
FUNCTION_LINES_MAX: Final = 70

# Who may import whom. What is not listed does not exist; a new package starts here.
MAY_IMPORT: Final[dict[str, frozenset[str]]] = {
    "base": frozenset(),
    "hot": frozenset({"base"}),
    "model": frozenset({"base", "hot"}),
    "filters": frozenset({"base", "model"}),
    "wire": frozenset({"base", "hot", "model"}),
    "store": frozenset({"base", "hot", "model"}),
    "net": frozenset({"base", "model", "wire"}),
    "nameserver": frozenset({"base", "hot", "model", "wire", "net", "metrics"}),
    "offline": frozenset({"base", "hot", "model", "wire", "store"}),
    "metrics": frozenset({"base"}),
    "replication": frozenset({"base", "hot", "model", "wire", "store", "net"}),
    "controller": frozenset({"base", "model", "wire", "net"}),
    "broker": frozenset(
        {"base", "hot", "model", "filters", "wire", "store", "net", "metrics", "replication"}
    ),
    "client": frozenset({"base", "hot", "model", "filters", "wire", "net"}),
    "console": frozenset({"base", "model", "wire", "client"}),
    # The connector reaches a cluster through the client, and files through offline.
    "spark": frozenset(
        {"base", "hot", "model", "filters", "wire", "net", "client", "store", "offline"}
    ),
    "pipeline": frozenset({"base", "hot", "model", "client", "store", "offline", "spark"}),
    "cli": frozenset(
        {"base", "hot", "model", "filters", "wire", "store", "offline", "net", "nameserver"}
        | {"metrics", "replication", "controller", "broker", "client", "console", "spark"}
        | {"pipeline"}
    ),
    "testing": frozenset(
        {"base", "hot", "model", "filters", "wire", "store", "net", "nameserver", "broker"}
        | {"metrics", "replication", "controller", "client"}
    ),
}
# Packages that must stay usable without an event loop or a socket.
NO_IO: Final = frozenset({"hot", "model", "wire"})
IO_MODULES: Final = frozenset({"asyncio", "socket", "ssl", "subprocess", "threading", "uvloop"})


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def python_files() -> list[Path]:
    folders = [PACKAGE, ROOT / "tests", ROOT / "benchmarks", ROOT / "examples"]
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def imported_modules(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def layer_of(path: Path) -> str | None:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else None


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_files_stay_within_their_budget() -> None:
    hot = [*PACKAGE.rglob("*.pyx"), *PACKAGE.rglob("*.pxd")]
    sizes = {name(path): len(path.read_text("utf-8").splitlines()) for path in sources() + hot}
    assert len(sizes) > 30
    assert {path: lines for path, lines in sizes.items() if lines > FILE_LINES_MAX} == {}


def test_functions_stay_within_their_budget() -> None:
    long = {}
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                lines = node.end_lineno - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    long[f"{name(path)}:{node.lineno} {node.name}"] = lines
    assert long == {}


def test_imports_point_downwards_only() -> None:
    upward = []
    for path in sources():
        layer = layer_of(path)
        if layer is None:
            continue
        allowed = MAY_IMPORT[layer] | {layer}
        for module in imported_modules(path):
            parts = module.split(".")
            if parts[0] == "firearrow" and len(parts) > 1 and parts[1] not in allowed:
                upward.append(f"{name(path)} imports {module}")
    assert upward == []


def test_every_package_has_its_place_in_the_layers() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages == set(MAY_IMPORT)


def test_protocol_and_model_do_no_io() -> None:
    found = [
        f"{name(path)} imports {module}"
        for path in sources()
        if layer_of(path) in NO_IO
        for module in imported_modules(path)
        if module.split(".")[0] in IO_MODULES
    ]
    assert found == []


def test_import_cycles_do_not_exist() -> None:
    graph: dict[str, set[str]] = {}
    for path in sources():
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        graph[module.removesuffix(".__init__")] = set(imported_modules(path))
    edges = {module: targets & set(graph) for module, targets in graph.items()}

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail, module))
        if module not in done:
            for target in edges[module]:
                visit(target, (*trail, module))
            done.add(module)

    done: set[str] = set()
    for module in edges:
        visit(module, ())


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "README.md", "CONTRIBUTING.md"])
def test_documents_name_only_files_that_exist(document: str) -> None:
    text = (ROOT / document).read_text("utf-8")
    mentioned = set(re.findall(r"`([\w./-]+\.(?:py|pyx|md|txt|toml))`", text))
    mentioned |= set(re.findall(r"`([\w.-]+(?:/[\w.-]+)*/)`", text))
    mentioned |= set(re.findall(r"\]\(([^)#:]+)\)", text))
    assert mentioned, "a map without places"
    missing = [
        path
        for path in sorted(mentioned)
        if not any((base / path).exists() for base in (ROOT, PACKAGE, ROOT / "tests"))
    ]
    assert missing == []


def places_on_the_map() -> list[str]:
    """Paths that the tree in ARCHITECTURE.md draws, by its indentation."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    tree = re.search(r"```text\nsrc/firearrow/\n(.*?)```", text, re.DOTALL)
    assert tree is not None
    places, folder = [], ""
    for line in tree.group(1).splitlines():
        drawn = re.match(r"(.*?)[├└]── ([\w./]+)", line)
        assert drawn is not None, f"{line!r} draws nothing"
        if drawn.group(1):
            places.append(folder + drawn.group(2))
        else:
            folder = drawn.group(2)
            places.append(folder)
    return places


def test_the_map_shows_only_what_exists() -> None:
    places = places_on_the_map()
    assert len(places) > 30
    assert [place for place in places if not (PACKAGE / place).exists()] == []


def test_every_module_is_on_the_map() -> None:
    places = set(places_on_the_map())
    modules = [path.relative_to(PACKAGE) for path in sources() if not path.stem.startswith("__")]
    unseen = [
        str(module)
        for module in modules
        # What lies deeper (headers/, bodies/, reference/) is on the map as a folder.
        if str(module) not in places and f"{module.parent}/" not in places - {f"{module.parts[0]}/"}
    ]
    assert unseen == []


def test_markdown_files_have_one_title() -> None:
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        text = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL)
        assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1, name(path)


def test_nothing_is_left_open_in_the_code() -> None:
    marker = re.compile(r"\b(TODO|FIXME|HACK)\b")
    found = [
        f"{name(path)}:{number}"
        for path in python_files()
        if path != Path(__file__)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if marker.search(line)
    ]
    assert found == []


def test_importing_firearrow_is_cheap() -> None:
    heavy = ["grpc", "pyspark", "pyarrow", "uvloop", "typer", "asyncio"]
    heavy += [f"firearrow.{layer}" for layer in MAY_IMPORT]
    code = (
        "import sys, firearrow\n"
        f"print([m for m in {heavy!r} if m in sys.modules or f'{{m}}.' in str(sys.modules.keys())])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_blocking_admin_is_what_its_script_writes() -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / "scripts" / "blocking-admin", "--check"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, f"run scripts/blocking-admin\n{ran.stderr}"
