"""Programs that tests start, and the memory that calls take."""

import subprocess
import sys
import tracemalloc


def ran(*arguments, **how):
    """What Python did with these arguments, in a process of its own."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **how)


def printed(*arguments, **how):
    """What it prints, where it does not fail."""
    done = ran(*arguments, **how)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def peak_memory(call):
    """What a call gives, and the most bytes it held at a time."""
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def without(*names):
    """Code after which a program finds these libraries not installed."""
    return f"""
import sys
class Absent:
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Absent())
"""
