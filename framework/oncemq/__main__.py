"""`python -m oncemq`: the program, where its script is not on the path."""

from oncemq.cli.main import main

if __name__ == "__main__":
    main()
