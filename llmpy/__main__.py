"""`python -m llmpy` and the `llmpy` command."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
