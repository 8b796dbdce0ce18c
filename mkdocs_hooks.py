"""What the site has in addition to the pages of docs/: docstrings on the API page, and the changelog.

The Markdown of docs/ has no directives, so that it also reads well on a code host.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_API_ENTRY: Final = re.compile(r"^- \[`(pyspark_rocketmq\.[\w.]+)`\]\(.*$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the changelog."""
    changelog = Path(config.config_file_path).parent / "CHANGELOG.md"
    files.append(File.generated(config, "changelog.md", content=changelog.read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Replace the entries of the API page by their docstrings."""
    return _API_ENTRY.sub(r"::: \1", markdown) if page.file.src_uri == "api.md" else markdown
