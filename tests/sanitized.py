"""The kernels' tests on extensions that a compiler has instrumented: `make sanitize` (Linux, GCC).

python tests/sanitized.py address,undefined | thread
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = (
    *("deploy/test_compiled.py", "deploy/test_routing.py", "student/test_kernel.py"),
    *("objective/test_kernels.py", "objective/test_pass_threads.py"),
)
# The extension of this environment is found first by a finder of its own.
RUN = """
import sys
sys.meta_path = [f for f in sys.meta_path if "ScikitBuild" not in type(f).__name__]
sys.path.insert(0, {folder!r})
import pytest, sparsebag
assert sparsebag.__file__.startswith({folder!r})
sys.exit(pytest.main(["-p", "no:cacheprovider", "-m", "not slow", *{tests!r}]))
"""


def library(name):
    found = subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip()
    return os.path.realpath(found)


def main(kind):
    flags = f"-fsanitize={kind} -fno-sanitize-recover=all -fno-omit-frame-pointer -g"
    with tempfile.TemporaryDirectory() as folder:
        build = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", str(ROOT)]
        build += ["--target", folder, f"--config-settings=cmake.define.CMAKE_CXX_FLAGS={flags}"]
        subprocess.run(build, check=True)
        runtime = "libtsan.so" if kind == "thread" else "libasan.so"
        how = {
            "LD_PRELOAD": f"{library(runtime)}:{library('libstdc++.so')}",
            "ASAN_OPTIONS": "detect_leaks=0",  # Python keeps much until it ends
            "TSAN_OPTIONS": "halt_on_error=1",
            **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1"),  # not instrumented
        }
        code = RUN.format(folder=folder, tests=[str(ROOT / "tests" / name) for name in TESTS])
        # Thread sanitizer needs the addresses it knows: setarch -R leaves them unshuffled.
        run = ["setarch", "-R", sys.executable, "-c", code]
        return subprocess.run(run, env={**os.environ, **how}, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
