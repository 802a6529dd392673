"""A process's own memory, now and at its highest (Linux)."""

from functools import partial
from pathlib import Path


def _status(field: str, process: int | str = "self") -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    (found,) = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return int(found) * 1024


held_bytes = partial(_status, "VmRSS")  # resident now
reserved_bytes = partial(_status, "VmData")  # private and writable: what RLIMIT_DATA counts
peak_bytes = partial(_status, "VmHWM")  # its own; getrusage's is that of whoever started it, too


def forget_peak() -> None:
    """Let the high-water mark start from what is held now."""
    Path("/proc/self/clear_refs").write_text("5")
