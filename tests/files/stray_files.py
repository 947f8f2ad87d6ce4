"""Names of files that a killed process of hierlearn would have left."""

from hierlearn.files.writing import machine

NO_PROCESS = 2**22 + 1  # more than Linux gives out


def stray_name(ending, pid=NO_PROCESS, start=1, where=None):
    """Return the name of a hidden file or folder of a process that is not there."""
    return f".hierlearn-{where or machine()}-{pid}-{start}-{'0' * 16}.{ending}"
