"""`python -m bcol` is `bcol`."""

from bcol.cli import main

if __name__ == "__main__":
    main()
