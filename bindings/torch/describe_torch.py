"""Prints the facts about this interpreter's torch that the build needs, separated by semicolons.

pip builds in isolation: PYTHONPATH names a folder that hides the environment's packages. Without PYTHONPATH they are
visible.
"""

import os
import sys

# torch loads backends that packages of the environment announce: an earlier qccl, whose folder may be gone.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

ISOLATION = ("PYTHONPATH", "PYTHONNOUSERSITE")


def main() -> None:
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        look_outside_isolation()
        sys.exit(
            f"qccl is built for the torch of the environment, and that of {sys.executable} has none: install torch "
            "there first, and with a tool that builds in an environment of its own turn that off (uv: "
            "--no-build-isolation, python -m build: --no-isolation)"
        )
    print(
        torch.__version__,
        os.path.dirname(torch.__file__),
        int(torch.compiled_with_cxx11_abi()),
        sep=";",
    )


def look_outside_isolation() -> None:
    """Restarts without the variables that isolate; returns if PYTHONPATH is not set."""
    environment = {name: value for name, value in os.environ.items() if name not in ISOLATION}
    if "PYTHONPATH" in os.environ:
        os.execve(sys.executable, [sys.executable, __file__], environment)


if __name__ == "__main__":
    main()
