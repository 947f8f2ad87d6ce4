"""Names of files that a killed process of hierlearn would have left."""


def stray_name(ending):
    """Return the name of a hidden file or folder that no process holds."""
    return f".hierlearn-{'0' * 16}.{ending}"
