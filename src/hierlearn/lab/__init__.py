"""Stage 14: candidates compared over seeds on one dataset or many, with honest statistics."""
