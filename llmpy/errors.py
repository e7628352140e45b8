"""The errors that llmpy raises on purpose.

    ValueError
      UsageError      an argument, flag or path that cannot be carried out as given; exit status 2
        ConfigError   a model or training setting that contradicts another
      FormatError     a file whose content is not what it should be; exit status 1
    RuntimeError
      BackendError    a device or backend that is missing or failed; exit status 1
      NonFiniteError  a loss or gradient norm that is NaN or infinite; exit status 1
      OrderError      calls in an impossible order, such as backward before forward; exit status 1

A message is one line: who, what, got, expected, because, remedy.
"""


class UsageError(ValueError):
    """An argument, flag or path that cannot be carried out as given."""


class ConfigError(UsageError):
    """A setting that is impossible, or impossible beside another."""


class FormatError(ValueError):
    """A file whose content is not what it should be."""


class BackendError(RuntimeError):
    """A device or backend that is missing, too small, or failed."""


class NonFiniteError(RuntimeError):
    """A loss or gradient norm that is NaN or infinite: nothing was updated."""


class OrderError(RuntimeError):
    """Calls in an impossible order, such as backward before forward with targets."""
