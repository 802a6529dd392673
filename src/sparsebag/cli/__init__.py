"""The command line: `command` has what all commands share; `tables` and `models` read files.

`__main__.main` is what the ``sparsebag`` script calls; it imports typer, rich and pandas only then.
"""
