"""A smaller model taught by the whole ensemble: pruned inside its trees, leaves refitted."""
