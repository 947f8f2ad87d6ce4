"""Hierarchies from and to other forms: paths, edges, graphs, frames, JSON, OBO, RDF, Clus."""
