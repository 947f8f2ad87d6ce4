"""Images in folders, tar shards and tables."""
