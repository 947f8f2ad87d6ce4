"""Systems of the literature, one file each, to compare with; they come in as entry points."""
