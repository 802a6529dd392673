"""What a visitor does first: README's two commands and its first example, in a fresh clone.

    python -m benchmarks.first_minutes

Clones the commit that is checked out into a temporary folder, and prints what each step took and
whether the example's output is README's.
"""

import re
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.kept_output import options, results_of
from benchmarks.picture import ROOT, example_output


def took(folder: Path, *command: str) -> tuple[float, str]:
    """Seconds of a command, and what it printed; a command that fails ends the benchmark."""
    began = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}")
    return time.perf_counter() - began, done.stdout


def main() -> None:
    """Clone, run, compare."""
    options(__doc__).parse_args()
    with results_of("first_minutes", keep=True), tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "sparsebag"
        took(ROOT, "git", "clone", "--quiet", str(ROOT), str(folder))
        readme = (folder / "README.md").read_text(encoding="utf-8")
        commands = re.findall(r"^(make \w+)", readme, flags=re.MULTILINE)
        for command in commands:
            print(f"{command:<14}{took(folder, *command.split())[0]:7.1f} s", flush=True)
        (folder / "example.py").write_text(re.findall(r"```python\n(.*?)```", readme, re.S)[0])
        seconds, printed = took(folder, str(folder / ".venv/bin/python"), "example.py")
        same = printed == example_output(readme)
        print(f"{'first example':<14}{seconds:7.1f} s")
        print(f"its output is {'README’s' if same else 'not README’s:'}")
        print("" if same else printed)


if __name__ == "__main__":
    main()
