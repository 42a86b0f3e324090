"""`python -m joinsum.cli`, which torchrun starts."""

from joinsum.cli.main import main

if __name__ == "__main__":
    main()
