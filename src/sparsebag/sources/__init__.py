"""Where rows of evidence are: in memory, in files, from a generator, on a Dask cluster."""
