"""Fuzz one target, guided by coverage: ``python -m tests.fuzz.run record --seconds 30``.

With ``--keep`` what reaches new code is kept in ``tests/fuzz/corpus``. An input that breaks the target ends
the run with another status than 0 and is written beside the corpus.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import atheris

CORPUS = Path(__file__).parent / "corpus"
MAX_INPUT_BYTES = 2_048


def main() -> None:
    """Fuzz as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--runs", type=int, help="end after this number of inputs instead")
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    parser.add_argument("--keep", action="store_true", help="keep what was found in the corpus")
    given = parser.parse_args()

    with atheris.instrument_imports(include=["pyspark_rocketmq"]):
        from tests.fuzz.seeds import SEEDS  # noqa: PLC0415 - instrumented while it is imported
        from tests.fuzz.targets import call  # noqa: PLC0415

    corpus = CORPUS / given.target
    corpus.mkdir(parents=True, exist_ok=True)
    # libFuzzer ends the process without unwinding: the folder is the caller's, or the system's to remove.
    work = Path(tempfile.mkdtemp(prefix="fuzz-"))
    for number, seed in enumerate(SEEDS[given.target]):
        (work / f"seed-{number}").write_bytes(seed)
    arguments = [
        sys.argv[0],
        f"-runs={given.runs}" if given.runs else f"-max_total_time={given.seconds}",
        f"-max_len={MAX_INPUT_BYTES}",
        f"-artifact_prefix={corpus.parent / given.target}-crash-",
        "-rss_limit_mb=2048",
        "-timeout=60",  # seconds, of a busy machine
        "-report_slow_units=60",  # else an input that took 10 s is written beside the corpus
        "-print_final_stats=1",
        "-verbosity=0",
    ]
    if given.seed:
        arguments.append(f"-seed={given.seed}")
    # New inputs go into the first folder.
    folders = [corpus, work] if given.keep else [work, corpus]
    arguments += [str(folder) for folder in folders]
    atheris.Setup(arguments, lambda data: call(given.target, data))
    try:
        atheris.Fuzz()
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
