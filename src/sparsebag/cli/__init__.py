"""The command line: one file a command, and few files for what commands share.

`entry.main` is what the ``sparsebag`` script calls; it imports typer, rich and pandas only then.
"""
