"""After selection: leaf values of the survivors anew, and a calibrator at the deployed size."""
