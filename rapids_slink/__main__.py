"""``python -m rapids_slink``: see `rapids_slink.cli`."""

import sys

from rapids_slink.cli import main

if __name__ == "__main__":
    sys.exit(main())
