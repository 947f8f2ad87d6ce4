"""``python -m hierlearn`` is the command line."""

from hierlearn.cli import main

if __name__ == "__main__":
    main()
