"""Stage 6: a memory of encoded rows, in which a head looks its answers up."""
