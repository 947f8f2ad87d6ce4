"""Engines that run hierlearn on many machines: Ray and Dask, which people operate already."""
