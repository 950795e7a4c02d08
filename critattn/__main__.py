"""`python -m critattn` is the command `critattn`."""

from critattn.cli import main

if __name__ == "__main__":
    main(prog_name="critattn")
