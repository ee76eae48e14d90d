"""``python -m lioncub``: the command line."""

from lioncub.tools.cli import main

if __name__ == "__main__":
    main()
