"""``python -m sparsebag.cli`` is the ``sparsebag`` script."""

from sparsebag.cli.entry import main

main()
