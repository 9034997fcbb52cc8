"""The one error that bad input raises."""


class InputError(ValueError):
    """The input cannot be used; the message is one line that names it and says what to do.

    The command line prints the message and exits with code 2.
    """
