"""Serving: a model behind HTTP, as ``hierlearn serve`` runs it."""
