"""The paper benchmark's figures, one file a figure: ``measure`` computes, ``draw`` draws."""
