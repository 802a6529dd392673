"""How good will it be: one curve of sizes, drawn by a rehearsal or out of bag, and the choice."""
