"""Lists the promises of each page with their tests, and fails if the list is not true: `make promises`."""

import sys

from promises import listed, pages, silent_sections, without, wrong


def main() -> int:
    """Print pages, promises and tests; returns 1 if something is wrong."""
    promises, texts = listed(), pages()
    for page, text in texts.items():
        if reason := without().get(page):
            print(f"\n{page}: none ({reason})")  # noqa: T201 - this is a program
            continue
        mine = [promise for promise in promises if promise.page == page]
        print(f"\n{page}: {len(mine)} promises")  # noqa: T201
        for _, says, tests in mine:
            print(f"  {says}\n    {chr(10).join(tests).replace(chr(10), chr(10) + '    ')}")  # noqa: T201
        if silent := silent_sections(page, text, promises):
            print(f"  sections without a listed promise: {', '.join(silent)}")  # noqa: T201
    problems = list(wrong(promises, texts))
    tests = {test for promise in promises for test in promise.tests}
    print(f"\n{len(promises)} promises on {len(texts)} pages, named by {len(tests)} tests")  # noqa: T201
    for problem in problems:
        print(problem, file=sys.stderr)  # noqa: T201
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
