"""Tables in files and frames: their readers, the kinds of their columns, and writers."""
