"""Runs the `oncemq` program by `python -m oncemq`, where its script is not on the path."""

from oncemq.cli.entry import main

if __name__ == "__main__":
    main()
