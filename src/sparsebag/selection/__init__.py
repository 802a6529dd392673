"""How many members, and which: paths, budgets, and the guard that keeps the choice honest."""
