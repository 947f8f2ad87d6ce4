"""Stage 13: compare losses over seeds, with statistics; the paper's tables."""
