"""The house: no circle of imports, no module too long, the layers that CONTRIBUTING.md names."""

from __future__ import annotations

import graphlib
import re
import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "pyspark_rocketmq"
MOST_LINES = 400
MOST_MODULES = 13  # a dozen, and __init__


def test_no_module_imports_itself_through_others():
    graph = grimp.build_graph("pyspark_rocketmq", cache_dir=None)
    packages = {module for module in graph.modules if graph.find_children(module)}
    imports = {
        module: {other for other in graph.find_modules_directly_imported_by(module) if other not in packages}
        for module in graph.modules - packages
    }
    graphlib.TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle


def test_modules_and_folders_stay_small():
    lengths = {path: path.read_text(encoding="utf-8").count("\n") for path in PACKAGE.rglob("*.py")}
    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES} == {}
    folders = {path.parent for path in lengths}
    assert {path: n for path in folders if (n := len(list(path.glob("*.py")))) > MOST_MODULES} == {}


def test_contributing_shows_the_layers_that_are_held():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    held = next(
        contract["layers"]
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers" and contract["containers"] == ["pyspark_rocketmq"]
    )
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    steps = re.findall(r"^\d\. `[\w/]+\.py`.*$", text, re.MULTILINE)
    paths = [path for step in steps for path in re.findall(r"`([\w/]+\.py)`", step)]
    assert [path for path in paths if not (PACKAGE / path).is_file()] == []
    assert len(paths) > 25
    table = re.findall(r"^\| (\d+) \| (.+?) \|", text, re.MULTILINE)
    shown: dict[int, set[str]] = {}
    for layer, names in table:
        shown.setdefault(int(layer), set()).update(
            re.sub(r"(/|\.py)$", "", name) for name in re.findall(r"`([\w./]+)`", names)
        )
    assert [shown[layer] for layer in sorted(shown, reverse=True)] == [
        set(line.split(" | ")) for line in held
    ]


def test_one_function_quotes_names_for_spark():
    quoting = [
        path for path in PACKAGE.rglob("*.py") if '.replace("`", "``")' in path.read_text(encoding="utf-8")
    ]
    assert [str(path.relative_to(PACKAGE)) for path in quoting] == ["spark/body_formats.py"]
