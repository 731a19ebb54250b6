"""Build the node image, if anything changed.

python -m cluster.image
python -m cluster.image --torch 2.9.1 --torchvision 0.24.1     # PyPI's torch: CUDA, and FSDP2 on the CPU
python -m cluster.image --torch debian                         # back to Debian's 2.6
python -m cluster.image --mujoco  # for --task-set env=Hopper-v5 and Walker2d-v5; --no-mujoco removes it
python -m cluster.image --base OURS  # on your own Debian 13 image, e.g. with your network's certificates
"""

import sys
from argparse import BooleanOptionalAction, Namespace

from cluster.base.console import Console
from cluster.base.spec import IMAGE
from cluster.cli.command_line import make_parser, run_verb
from cluster.engine.client import Engine
from cluster.engine.image import BASE_IMAGE, ensure_image, last_args, requested_args


def main(argv: list[str] | None = None) -> int:
    """Build the node image."""
    parser = make_parser("cluster.image", __doc__)
    parser.add_argument(
        "--torch", metavar="VERSION", help="torch version from PyPI; 'debian': Debian's 2.6"
    )
    parser.add_argument(
        "--torchvision", metavar="VERSION", help="torchvision version that fits --torch"
    )
    parser.add_argument(
        "--base", metavar="IMAGE", help=f"Debian 13 image to build on (default: {BASE_IMAGE})"
    )
    parser.add_argument(
        "--mujoco",
        action=BooleanOptionalAction,
        help="include MuJoCo, 80 MB more (default: unchanged)",
    )
    return run_verb(parser, build_image, argv)


def build_image(args: Namespace) -> dict[str, object]:
    """Run the verb: build the image if necessary, and report whether it was built."""
    console, engine = Console(), Engine()
    with console.progress("image") as report:
        wanted = requested_args(
            last_args(engine), args.torch, args.torchvision, args.base, mujoco=args.mujoco
        )
        built = ensure_image(engine, report, wanted)
    console.say(f"{IMAGE}: {'built' if built else 'already that of this checkout'}")
    return {"image": IMAGE, "built": built}


if __name__ == "__main__":
    sys.exit(main())
