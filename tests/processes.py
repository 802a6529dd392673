"""Programs that tests start."""

import subprocess
import sys


def ran(*arguments, **how):
    """What Python did with these arguments, in a process of its own."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **how)
