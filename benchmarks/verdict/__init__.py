"""The paper's claims judged by rules on the benchmark's results; one section of the page a file."""
