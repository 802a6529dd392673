"""How the objective is minimised over the simplex: one solver a file, one `Solution` for all."""
