"""Tries many odd inputs: files that users write, arguments, answers of nodes. Prints a table of the results.

    python tests/fuzz.py                                    # 1,000 examples of each family, always the same ones
    python tests/fuzz.py --examples 1000 --seed 7           # others
    python tests/fuzz.py --examples 500 --only answers metrics      # a family, or a case of one

Each example must end with exit code 0, 1 or 2 and one clear line, in bounded time and memory, without a traceback and
without writing a file outside of the allowed folders (tests/shared/fuzzing/). Docker is not needed. The exit code is 1
if one did not; the smallest example that shows it is printed.
"""

import argparse
import sys
import time
import traceback
from pathlib import Path

MOST_CHARACTERS = 6000
ROW = "{:<10} {:<15} {:>8} {:>7}  {}"
SHARED = Path(__file__).resolve().parent
sys.path[:0] = [str(SHARED / "shared"), str(SHARED / "unit"), str(SHARED.parent)]


from fuzzing.families import FAMILIES, shares, try_case  # noqa: E402
from fuzzing.sandbox import TookTooLong  # noqa: E402


def main() -> int:
    """Try all requested cases; print a line for each as it ends."""
    args, failed = arguments(), 0
    print(ROW.format("FAMILY", "CASE", "EXAMPLES", "s", "CAME OF IT"))
    for family, cases in FAMILIES.items():
        named = [name for name in cases if not args.only or {family, name} & set(args.only)]
        for name, examples in shares(named, args.examples).items():
            began = time.monotonic()
            try:
                tried = try_case(family, name, examples, args.seed)
                count = tried.examples
                found = ", ".join(f"{word}: {count}" for word, count in tried.results.most_common())
            except (Exception, TookTooLong) as error:
                failed, count, found = failed + 1, 0, f"FAILED\n{short(error)}"
            print(
                ROW.format(family, name, count, f"{time.monotonic() - began:.1f}", found),
                flush=True,
            )
    return 1 if failed else 0


def short(error: BaseException) -> str:
    """Return the end of a traceback without library lines, and the example, both shortened."""
    frames = [
        one
        for one in traceback.extract_tb(error.__traceback__)
        if "site-packages" not in one.filename
    ]
    notes = "\n".join(getattr(error, "__notes__", [])[-1:])
    lines = [*traceback.format_list(frames[-8:]), *traceback.format_exception_only(error)]
    return f"{''.join(lines)[-MOST_CHARACTERS:]}{notes[:MOST_CHARACTERS]}"


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--examples", type=int, default=1000, help="of each family (default: %(default)s)")
    add("--seed", type=int, help="draws them (default: always the same)")
    known = [*FAMILIES, *(name for cases in FAMILIES.values() for name in cases)]
    add("--only", nargs="+", choices=known, metavar="NAME", help=f"some of {', '.join(known)}")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
