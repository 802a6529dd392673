"""A process's own memory, now and at its highest (Linux)."""

from pathlib import Path


def held_bytes(process: int | str = "self") -> int:
    """Resident now."""
    return _status("VmRSS", process)


def reserved_bytes() -> int:
    """Private and writable, used or not: what RLIMIT_DATA counts."""
    return _status("VmData")


def peak_bytes() -> int:
    """The process's own high-water mark; getrusage's is that of whoever started it, too."""
    return _status("VmHWM")


def forget_peak() -> None:
    """Let the high-water mark start from what is held now."""
    Path("/proc/self/clear_refs").write_text("5")


def _status(field: str, process: int | str = "self") -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    (found,) = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return int(found) * 1024
