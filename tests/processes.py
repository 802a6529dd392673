"""Programs that tests start, and the memory that calls take."""

import subprocess
import sys
import tracemalloc


def ran(*arguments, **how):
    """What Python did with these arguments, in a process of its own."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **how)


def peak_memory(call):
    """What a call gives, and the most bytes it held at a time."""
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
