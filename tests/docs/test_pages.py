"""The pages say nothing that is not so: tests, errors, commands and examples that they name are there."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import yaml
from tests.support.cli import every_command
from tests.support.collected import collected_tests
from tests.support.wheel import ROOT

from pyspark_rocketmq import errors

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))

SHOWN_BY = {
    "coming_from": "tests/spark/test_docs_examples.py",
    "deployment": "tests/spark/test_docs_examples.py",
    "live": "tests/spark/test_notebook.py",
    "quickstart": "tests/spark/test_docs_examples.py",
}
"""The examples that pages show pieces of, and the test that runs them."""


NOT_RUN = {"consumer-groups.md"}
"""Its example waits for a person; tests/contract/test_push_consumer.py runs the same calls."""


def text(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["guarantees.md", "deployment.md", "defects.md"])
def test_every_test_that_a_page_names_is_there(page: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text(page))
    assert named
    for path, test in named:
        tests = collected_tests(ROOT / path)
        assert test in tests if test else tests, f"{path}::{test}"


def test_every_promise_is_shown_by_a_test() -> None:
    rows = [line for line in text("guarantees.md").splitlines() if re.match(r"\| [A-Z`]", line)]
    assert len(rows) > 15
    for row in rows:
        assert "`tests/" in row, row


def test_every_error_has_advice() -> None:
    page = text("troubleshooting.md")
    sections = re.split(r"^### ", page, flags=re.MULTILINE)[1:]
    described = {section.split("\n", 1)[0]: section for section in sections}
    assert set(errors.__all__) <= described.keys(), set(errors.__all__) - described.keys()
    for name in errors.__all__:
        doc = inspect.getdoc(getattr(errors, name)) or ""
        told = (f"::: pyspark_rocketmq.errors.{name}\n", doc.split("\n")[0] + "\n")
        assert any(text in described[name] for text in told), name
        advice = re.sub(r"^(:::.*|    .*)$", "", described[name].split("\n", 1)[1], flags=re.MULTILINE)
        assert advice.strip(), f"{name} has no advice"


def test_every_condition_of_data_loss_has_advice() -> None:
    raised = {
        condition
        for file in (ROOT / "src").rglob("*.py")
        for condition in re.findall(r'condition="([A-Z_]+)"', file.read_text(encoding="utf-8"))
    }
    assert raised
    missing = {condition for condition in raised if f"`{condition}`" not in text("troubleshooting.md")}
    assert not missing


def test_every_command_is_described() -> None:
    page = text("command-line.md")
    commands = [" ".join(path) for path in every_command()]
    missing = [command for command in commands if f"`{command}`" not in page]
    assert not missing


def test_code_is_a_piece_of_an_example_or_run_by_a_test() -> None:
    sources = [file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py")]
    for page in PAGES:
        if page.name not in navigation() or page.name in NOT_RUN:
            continue
        for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            piece = re.fullmatch(r'\s*--8<-- "examples/(\w+)\.py:[\w-]+"\s*', block)
            if piece is None:
                assert any(f'"{page.name}"' in source for source in sources), f"no test runs {page.name}"
            else:
                imports = (ROOT / SHOWN_BY[piece[1]]).read_text(encoding="utf-8")
                assert re.search(rf"^from examples import .*\b{piece[1]}\b", imports, re.MULTILINE)


@pytest.mark.parametrize("example", sorted(SHOWN_BY))
def test_every_shown_function_is_called_by_its_test(example: str) -> None:
    source = (ROOT / "examples" / f"{example}.py").read_text(encoding="utf-8")
    runner = (ROOT / SHOWN_BY[example]).read_text(encoding="utf-8")
    shown = re.findall(r"--8<-- \[start:.*?\]\n(.*?)# --8<-- \[end", source, re.DOTALL)
    functions = [name for piece in shown for name in re.findall(r"^def (\w+)", piece, re.MULTILINE)]
    assert functions
    idle = [name for name in functions if f".{name}(" not in runner and name != "start_spark"]
    assert not idle


def navigation() -> set[str]:
    return set(re.findall(r"[\w-]+\.md", yaml.safe_dump(site_configuration()["nav"])))


def test_the_navigation_leads_to_pages_that_are_there() -> None:
    found = navigation()
    assert len(found) > 15
    assert found <= {page.name for page in PAGES}


def site_configuration() -> dict[str, object]:
    configuration = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert isinstance(configuration, dict)
    return configuration


def test_public_names_have_docstrings() -> None:
    import pyspark_rocketmq  # noqa: PLC0415

    for name in pyspark_rocketmq.__all__:
        value = getattr(pyspark_rocketmq, name)
        assert isinstance(value, str) or inspect.getdoc(value), name


def test_relative_links_of_the_readme_lead_somewhere() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)", readme) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / Path(link)).exists()] == []
