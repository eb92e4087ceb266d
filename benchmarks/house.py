"""The size and the shape of the packages: lines, long functions, wide constructors, circles.

Code is every line that is neither blank, comment nor docstring; a docstring's lines are those
from quote to quote, and a function's lines leave its docstring out. Generated code is not counted.
A comment that begins with "One idea:" says why a place is larger than its limit.

    python -m benchmarks.house             # the table
    python -m benchmarks.house --check     # exit status 1 and a line for each broken limit
    python -m benchmarks.house --root DIR  # another checkout
"""

import argparse
import ast
import io
import json
import sys
import tokenize
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PACKAGES = ("privacy", "models", "server", "edge_client", "export", "simulation", "sotto")
LARGEST_FUNCTION = 60
LARGEST_FILE = 350
MOST_COLLABORATORS = 8
_LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT}
_EXCUSE = "# One idea:"

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Documented = ast.Module | ast.ClassDef | _Function


@dataclass
class Size:
    """One package's counts."""

    files: int = 0
    code: int = 0
    docstrings: int = 0


@dataclass
class House:
    """The sizes of the packages and the limits that they break.

    Attributes:
        sizes: By package.
        broken: One line for each broken limit.
    """

    sizes: dict[str, Size] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)


def survey(root: Path) -> House:
    """Read every file of the packages and return sizes and broken limits.

    Args:
        root: The checkout.
    """
    house = House()
    imports: dict[str, set[str]] = {}
    files = {_module(root, path): path for package in PACKAGES for path in _files(root / package)}
    for name, path in files.items():
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        size = house.sizes.setdefault(name.partition(".")[0], Size())
        documented = _docstring_lines(tree)
        lines = source.splitlines()
        size.files += path.name != "__init__.py"
        size.code += len(_code_lines(source) - documented)
        size.docstrings += len(documented)
        imports[name] = set(_imports(tree, files.keys()))
        house.broken += [f"{path.relative_to(root)}{text}" for text in _too_large(tree, lines)]
        if path.name == "__init__.py" and not ast.get_docstring(tree):
            house.broken.append(f"{path.relative_to(root)} has no sign: say what lives there")
    house.broken += [f"imports in a circle: {' <-> '.join(ring)}" for ring in circles(imports)]
    return house


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return the sets of modules that reach each other, by Tarjan's algorithm.

    Args:
        imports: The modules that each module imports, at load time, late or for types alone.
    """
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(imports[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            ring = stack[stack.index(name) :]
            del stack[-len(ring) :]
            if len(ring) > 1:
                found.append(sorted(ring))

    for name in imports:
        if name not in index:
            visit(name)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table, or the broken limits alone.

    Args:
        argv: Arguments; those of the process if None.
    """
    parser = argparse.ArgumentParser(prog="benchmarks.house", description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(), help="checkout to read")
    parser.add_argument("--check", action="store_true", help="fail where a limit is broken")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quick", action="store_true", help="as all benchmarks; the same here")
    given = parser.parse_args(argv)
    house = survey(given.root)
    if given.check:
        print("\n".join(house.broken) or "every room has its sign, its size and no circle")
        return bool(house.broken)
    total = Size(
        *(sum(getattr(size, name) for size in house.sizes.values()) for name in vars(Size()))
    )
    rows = {**house.sizes, "all": total}
    if given.json:
        print(json.dumps({"sizes": {n: vars(s) for n, s in rows.items()}, "broken": house.broken}))
        return 0
    print(f"{'package':<12}{'files':>8}{'code':>8}{'docstrings':>12}")
    for name, size in rows.items():
        print(f"{name:<12}{size.files:>8}{size.code:>8}{size.docstrings:>12}")
    print(f"limits broken: {len(house.broken)}")
    return 0


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*.py")) if "_pb2" not in path.name)


def _module(root: Path, path: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _docstring_lines(tree: ast.Module) -> set[int]:
    """Return the rows of docstrings, and of the strings that document attributes."""
    rows: set[int] = set()
    for node in ast.walk(tree):
        for child in getattr(node, "body", []) if isinstance(node, _Documented) else []:
            if (
                isinstance(child, ast.Expr)
                and isinstance(child.value, ast.Constant)
                and isinstance(child.value.value, str)
            ):
                rows.update(range(child.lineno, (child.end_lineno or child.lineno) + 1))
    return rows


def _code_lines(source: str) -> set[int]:
    rows: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _LAYOUT and token.string:
            rows.update(range(token.start[0], token.end[0] + 1))
    return rows


def _imports(tree: ast.Module, modules: Collection[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names] + [node.module]
        yield from (name for name in names if name in modules)


def _too_large(tree: ast.Module, lines: list[str]) -> Iterator[str]:
    """Yield one text for each limit that a file breaks without a comment that excuses it."""
    if len(lines) > LARGEST_FILE and not any(line.startswith(_EXCUSE) for line in lines):
        yield f" must have at most {LARGEST_FILE} lines, got {len(lines)}: split it by idea"
    for node in ast.walk(tree):
        if not isinstance(node, _Function):
            continue
        rows = (node.end_lineno or node.lineno) - node.lineno + 1 - len(_docstring_rows(node))
        excused = any(_EXCUSE in line for line in lines[node.lineno - 1 : node.end_lineno])
        if rows > LARGEST_FUNCTION and not excused:
            yield (
                f":{node.lineno} {node.name} must have at most {LARGEST_FUNCTION} lines, "
                f"got {rows}: carve out a step"
            )
        given = len(node.args.args) + len(node.args.kwonlyargs) - 1
        if node.name == "__init__" and given > MOST_COLLABORATORS and not excused:
            yield (
                f":{node.lineno} must take at most {MOST_COLLABORATORS} collaborators, "
                f"got {given}: join those that belong together"
            )


def _docstring_rows(node: _Function) -> set[int]:
    first = node.body[0]
    is_text = ast.get_docstring(node) is not None
    return set(range(first.lineno, (first.end_lineno or 0) + 1)) if is_text else set()


if __name__ == "__main__":
    sys.exit(main())
