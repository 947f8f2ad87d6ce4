"""Files: text and delimited rows; see reading.py and writing.py for the two doors."""

from hierlearn.files.reading import read_text as read_text
from hierlearn.files.rows import Start as Start
from hierlearn.files.rows import announced_delimiter as announced_delimiter
from hierlearn.files.rows import read_rows as read_rows
from hierlearn.files.rows import refuse_duplicates as refuse_duplicates
from hierlearn.files.rows import stream_rows as stream_rows
