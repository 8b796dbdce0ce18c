"""The pages say nothing that is not so: tests, errors, commands and examples that they name are there."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.support.api_page import ENTRY, PAGE, refreshed
from tests.support.cli import every_command
from tests.support.collected import collected_tests
from tests.support.page_code import python_blocks
from tests.support.pasted_page import blocks
from tests.support.wheel import ROOT

from pyspark_rocketmq import errors

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))

SHOWN_BY = {
    "coming_from": "tests/spark/test_docs_examples.py",
    "live": "tests/spark/test_notebook.py",
}
"""The examples that pages show pieces of, and the test that runs them."""


NOT_RUN = {"consumer-groups.md"}
"""Its example waits for a person; tests/contract/test_push_consumer.py runs the same calls."""

PASTED_BY = {"quickstart.md": "tests/spark/test_first_minutes.py::test_the_quickstart"}
"""The page whose programs are pasted into an interactive Python, with its shell commands."""


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
        section = " ".join(described[name].split("\n", 1)[1].split())
        doc = prose(inspect.getdoc(getattr(errors, name)) or "")
        assert section.startswith(doc), f"{name}: the page does not begin with its docstring: {doc}"
        assert section.removeprefix(doc).strip(), f"{name} has no advice"


def prose(docstring: str) -> str:
    """Return a docstring's sentences, up to its first numpydoc section, as Markdown in one line."""
    return " ".join(re.split(r"\n\n\w+\n-", docstring)[0].replace("``", "`").split())


def test_the_api_page_shows_what_docstrings_say() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len(ENTRY.findall(page)) == len(re.findall(r"^- ", page, re.MULTILINE)) > 50
    assert refreshed(page) == page, "run: make docs-api"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", *(f"docs/{page.name}" for page in PAGES)])
def test_pages_read_well_where_only_markdown_is_rendered(page: str) -> None:
    outside = re.sub(r"^ *```.*?^ *```$", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    directives = re.findall(r"^\s*(?:--8<--|:::|===|!!!|\?\?\?|\{:).*", outside, re.MULTILINE)
    assert not directives
    assert "--8<--" not in (ROOT / page).read_text()


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{page.name}" for page in PAGES)])
def test_no_page_claims_a_package_index(page: str) -> None:
    """Only an extra of an installed package is named: pip adds it without looking for the package."""
    lines = re.findall(r"pip install.*pyspark[-_]rocketmq.*", (ROOT / page).read_text())
    assert [line for line in lines if "pyspark-rocketmq[" not in line and ".whl" not in line] == []


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
    run_pages, run_examples = run_by_tests()
    pieces = [example(name) for name in SHOWN_BY]
    programs = {file.name: file.read_text().strip() for file in (ROOT / "examples").rglob("*.py")}
    whole = [code for name, code in programs.items() if name in run_examples]
    for page in PAGES:
        if page.name not in navigation() or page.name in NOT_RUN:
            continue
        for block in python_blocks(page.name):
            if block.strip() not in whole and not any(block.strip() in program for program in pieces):
                assert page.name in run_pages, f"no test runs {page.name}"


def run_by_tests() -> tuple[set[str], set[str]]:
    """Return the pages and the examples that tests run."""
    pages, examples = set[str](), set[str]()
    for file in (ROOT / "tests").rglob("test_*.py"):
        calls: dict[str, set[str]] = {}
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                    texts = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
                    calls.setdefault(name, set()).update(text for text in texts if isinstance(text, str))
                case _:
                    pass
        if calls.keys() & {"exec", "eval"}:
            pages |= calls.get("python_blocks", set())
        examples |= calls.get("run_path", set()) | calls.get("program", set())
    for page, test in PASTED_BY.items():
        path, _, name = test.partition("::")
        assert name in collected_tests(ROOT / path)
        pages.add(page)
    return pages, examples


@pytest.mark.parametrize("name", sorted(SHOWN_BY))
def test_every_shown_function_is_called_by_its_test(name: str) -> None:
    runner = (ROOT / SHOWN_BY[name]).read_text(encoding="utf-8")
    assert name in runner
    shown = [block for page in PAGES for block in python_blocks(page.name) if block.strip() in example(name)]
    assert shown
    functions = [function for block in shown for function in re.findall(r"^def (\w+)", block, re.MULTILINE)]
    assert not [function for function in functions if f".{function}(" not in runner]


def example(name: str) -> str:
    return (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")


def navigation() -> set[str]:
    return set(re.findall(r"[\w-]+\.md", yaml.safe_dump(site_configuration()["nav"])))


def test_the_navigation_leads_to_pages_that_are_there() -> None:
    found = navigation()
    assert len(found) > 15
    assert found - {"changelog.md"} <= {page.name for page in PAGES}  # mkdocs_hooks.py adds the changelog


def site_configuration() -> dict[str, object]:
    configuration = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert isinstance(configuration, dict)
    return configuration


def test_readme_and_quickstart_install_alike() -> None:
    pages = (ROOT / "README.md").read_text(), text("quickstart.md")
    readme, quickstart = ([b.code for b in blocks(page) if "pip install" in b.code] for page in pages)
    assert readme == quickstart
    assert len(readme) == 1
    assert all('pip install "pyspark-rocketmq[spark] @ git+ADDRESS"' in page for page in pages)


def test_the_image_s_spark_is_a_supported_one() -> None:
    supported = re.search(r"^\| Spark \| ([\d., ]+) \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert supported
    page = text("deployment.md")
    used = re.findall(r"FROM apache/spark:(\d+\.\d+)|sparkVersion: (\d+\.\d+)", page)
    assert len(used) == 2
    assert {image or package for image, package in used} <= set(supported[1].split(", "))


def test_the_blocks_of_deployment_are_well_formed() -> None:
    fences = re.findall(r"^ *```(\w*)\n(.*?)^ *```", text("deployment.md"), re.MULTILINE | re.DOTALL)
    commands, image, job = [], None, None
    for language, code in fences:
        if language == "python":
            compile(code, "deployment.md", "exec")
        elif code.startswith("FROM "):
            image = [line.split()[0] for line in code.splitlines()]
        elif code.startswith("apiVersion:"):
            job = yaml.safe_load(code)
        else:
            commands.append(code)
    assert image is not None
    assert set(image) <= {"FROM", "USER", "RUN", "ENV", "COPY"}
    assert job is not None
    assert job["kind"] == "SparkApplication"
    script = "\n".join(commands)
    driver = job["spec"]["driver"]
    (variable,), (secret,) = driver["env"], driver["envFrom"]
    for setting in (
        f"container.image={job['spec']['image']}",
        f"namespace={job['metadata']['namespace']}",
        f"authenticate.driver.serviceAccountName={driver['serviceAccount']}",
        f"driverEnv.{variable['name']}={variable['value']}",
        f"driver.secretKeyRef.ROCKETMQ_SECRET_KEY={secret['secretRef']['name']}:ROCKETMQ_SECRET_KEY",
    ):
        assert f"--conf spark.kubernetes.{setting} " in script
    assert job["spec"]["mainApplicationFile"] in script
    (serverless,) = (shlex.split(command) for command in commands if "--job-driver" in command)
    submitted = json.loads(serverless[-1])["sparkSubmit"]["sparkSubmitParameters"].split()
    assert set(submitted[::2]) == {"--conf"}
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


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
