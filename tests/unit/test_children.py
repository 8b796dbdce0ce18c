"""Processes that tests start can be ended with Ctrl-C, also where their parent ignores it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_children_end_at_ctrl_c_where_tests_run_in_the_background(tmp_path: Path) -> None:
    """As below nohup, or as a script's background job."""
    inner = tmp_path / "test_inner.py"
    inner.write_text(
        "import signal, subprocess, sys\n"
        "def test_child():\n"
        "    code = 'import signal; raise SystemExit(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)'\n"
        "    assert subprocess.run([sys.executable, '-c', code]).returncode == 0\n"
    )
    root = Path(__file__).parents[2]
    ignoring = ["/bin/sh", "-c", """trap '' INT; exec "$@" """, "sh"]
    command = [*ignoring, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [
            *command,
            "-p",
            "tests.conftest",
            f"--rootdir={root}",
            "-c",
            str(root / "pyproject.toml"),
            str(inner),
        ],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
