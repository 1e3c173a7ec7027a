"""How long a command takes to answer: help, a typo, tab completion, the README's sweep and the same once more.

Every command runs in a process of its own, in an empty folder; the shortest of three, but for the sweep itself. The
clock on the wall, whatever BENCH_CLOCK says: the sweep's workers are no children of its process.
    python benchmarks/bench_answers.py
"""

import os
import subprocess
import sys
import tempfile
import time

from timing import report

RUN = [sys.executable, "-m", "pipeline.run"]
SWEEP = [*RUN, "-m", "hydra/launcher=joblib", "attack=pgd,zoo", "model=natural,svc,adv_svm_c,adv_svm_d"]
TYPED = "advsvm attack.eps"


def seconds(command: list[str], home: str, code: int = 0, **variables: str) -> float:
    """From the command to its end."""
    start = time.perf_counter()
    done = subprocess.run(
        command, cwd=home, env=os.environ | variables, capture_output=True, text=True, check=False
    )  # fmt: skip
    spent = time.perf_counter() - start
    if done.returncode != code:
        sys.exit(done.stdout + done.stderr)
    return spent


def line(case: str, what: str, *spent: float) -> None:
    best = min(spent)
    report("answers", case=case, section="Answers", what=what, against="", shown=f"{best:.2f} s", seconds=best)


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        thrice = range(3)
        line("help", "`python -m pipeline.run --help`", *(seconds([*RUN, "--help"], home) for _ in thrice))
        line("typo", "a typo: `mdoel=svc`", *(seconds([*RUN, "mdoel=svc"], home, 1) for _ in thrice))
        asked = {"COMP_LINE": TYPED, "COMP_POINT": str(len(TYPED))}
        query = [*RUN, "-sc", "query=bash"]
        line("completion", f"tab completion of `{TYPED}`", *(seconds(query, home, **asked) for _ in thrice))
        line(
            "sweep", "`make run`: 4 models × 2 attacks on the digits, tuned, attacked, certified", seconds(SWEEP, home)
        )
        line("sweep again", "the same sweep, all reused", *(seconds(SWEEP, home) for _ in thrice))
        one = [*RUN, "attack=pgd", "model=natural"]
        line("run again", "one of its runs, reused", *(seconds(one, home) for _ in thrice))


if __name__ == "__main__":
    main()
