"""`python -m farpost` is the same as `farpost`."""

from farpost.cli import main

if __name__ == "__main__":
    main(prog_name="farpost")
