"""Progress on standard error: a line a step, and how long the rest takes at the pace so far."""

import sys
import time


class Progress:
    """Counts steps of a total."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.start = total, 0, time.perf_counter()

    def step(self, label: str) -> None:
        """One step is done."""
        self.done += 1
        minutes, rest = divmod(round(self.seconds / self.done * (self.total - self.done)), 60)
        told = f"{self.done}/{self.total}  {label}  {minutes}:{rest:02d} left"
        print(told, file=sys.stderr, flush=True)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self.start
