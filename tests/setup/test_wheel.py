"""The result of `pip install .`, for a user without the checkout on the path.

The wheel is built as pip builds it without flags, in isolation and against the torch of .venv, except that the build
backend comes from .venv instead of an index and that warnings are errors in continuous integration. The build folder
lies beside build/, where ccache has its objects. Another one is built as `make wheel` builds it, but for one release,
whose headers are those of .venv, and without kernels for GPUs, which take minutes.
"""

import ctypes
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build-wheel"
BUILD_FOR_RELEASES = ROOT / "build-wheel-releases"
# Warnings are errors where they are in build/, whose objects ccache has; for pip they never are.
AS_THE_CHECKOUT = ("cmake.define.QCCL_WERROR=ON",) if os.environ.get("CI") == "true" else ()
BUILD_LIMIT_SECONDS = 1200  # if nothing is cached
LIMIT_SECONDS = 100
BUILD_BACKEND = ("scikit-build-core", "packaging", "pathspec")
RELEASE = ".".join(torch.__version__.split(".")[:2])
FAKE = {"LD_LIBRARY_PATH": str(ROOT / "build" / "fake_cuda")}  # a driver without a GPU
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
pytestmark = pytest.mark.timeout(BUILD_LIMIT_SECONDS + LIMIT_SECONDS)

TRAINING = """
import os, sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

assert "qccl" not in sys.modules
dist.init_process_group("qccl")
model = DistributedDataParallel(torch.nn.Linear(300, 300))
model(torch.randn(8, 300)).square().mean().backward()
os.write(1, f"rank {dist.get_rank()} {sys.modules['qccl'].__file__}\\n".encode())  # in one piece
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def backend_wheels(tmp_path_factory):
    """A folder in which pip finds the build backend: wheels of the packages installed here."""
    folder = tmp_path_factory.mktemp("backend")
    for name in BUILD_BACKEND:
        found = distribution(name)
        with zipfile.ZipFile(folder / f"{name.replace('-', '_')}-{found.version}-py3-none-any.whl", "w") as wheel:
            for file in found.files:
                if ".." not in file.parts:
                    wheel.write(file.locate(), str(file))
    return folder


@pytest.fixture(scope="module")
def installed(backend_wheels, tmp_path_factory):
    """The folder into which only the wheel was installed."""
    folder = tmp_path_factory.mktemp("wheel")
    settings = (f"build-dir={BUILD}", *AS_THE_CHECKOUT)
    build = [*build_command(backend_wheels, folder), *(f"--config-settings={setting}" for setting in settings)]
    return build_and_install(build, folder)


@pytest.fixture(scope="module")
def installed_for_releases(backend_wheels, tmp_path_factory):
    """The same with the wheel that is built from headers of torch."""
    headers = tmp_path_factory.mktemp("headers")
    (headers / RELEASE).mkdir()
    (headers / RELEASE / "include").symlink_to(Path(torch.__file__).parent / "include")
    folder = tmp_path_factory.mktemp("wheel_for_releases")
    settings = (f"build-dir={BUILD_FOR_RELEASES}", *AS_THE_CHECKOUT, "cmake.define.QCCL_DEVICE_KERNELS=OFF")
    build = [*build_command(backend_wheels, folder), *(f"--config-settings={setting}" for setting in settings)]
    return build_and_install(build, folder, QCCL_TORCH_HEADERS=str(headers))


def build_and_install(build: list[str], folder: Path, **variables: str) -> Path:
    """`build`: pip's arguments that leave the wheel in the folder."""
    run([*PIP, *build], timeout=BUILD_LIMIT_SECONDS, CXX="c++", **variables)  # CMake's name for it
    (wheel,) = folder.glob("qccl-*.whl")
    site = folder / "site"
    run([*PIP, "install", "--no-deps", "--no-index", "--target", str(site), str(wheel)])
    return site


def build_command(backend_wheels, target):
    return ["wheel", "--no-deps", "--no-index", f"--find-links={backend_wheels}", f"--wheel-dir={target}", str(ROOT)]


def run(command, timeout=LIMIT_SECONDS, **variables):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_backend_is_found_by_its_name(installed, tmp_path):
    assert_trains(installed, tmp_path)


def assert_trains(installed, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(TRAINING)
    command = [str(installed / "bin" / "qccl"), "run", "-n", "2", "--", sys.executable, str(program)]
    lines = run(command, PYTHONPATH=str(installed)).splitlines()
    assert sorted(line.split()[1] for line in lines) == ["0", "1"]
    assert all(line.split()[2] == str(installed / "qccl" / "__init__.py") for line in lines)


def test_readmes_program_trains(installed, tmp_path):
    program, *_ = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "train.py").write_text(program)
    command = [str(installed / "bin" / "qccl"), "run", "-n", "2", "--", sys.executable, str(tmp_path / "train.py")]
    (line,) = [line for line in run(command, PYTHONPATH=str(installed)).splitlines() if line.startswith("loss")]
    loss, megabytes = map(float, re.fullmatch(r"loss ([\d.]+), ([\d.]+) MB sent", line).groups())
    assert loss < 200, "it begins at about 1400"
    assert megabytes < 20, "uncompressed it is 84"


def required_by(installed: Path) -> list[str]:
    (metadata,) = installed.glob("qccl-*.dist-info/METADATA")
    return re.findall(r"^Requires-Dist: ([^;\n]*)$", metadata.read_text(), re.MULTILINE)


def test_wheel_wants_the_torch_that_it_was_built_for(installed):
    assert required_by(installed) == [f"torch=={RELEASE}.*", "numpy"]


def test_build_in_an_environment_without_torch_says_in_one_line_what_to_do(backend_wheels, tmp_path):
    run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")])
    pip = [*PIP, "--python", str(tmp_path / "venv" / "bin" / "python")]
    done = subprocess.run(
        [*pip, *build_command(backend_wheels, tmp_path)],
        cwd="/", capture_output=True, text=True, timeout=LIMIT_SECONDS,
    )  # fmt: skip
    assert done.returncode != 0
    (line,) = [line for line in done.stderr.splitlines() if "torch" in line]
    assert str(tmp_path / "venv") in line and "install torch there first" in line and "--no-build-isolation" in line
    assert "Traceback" not in done.stderr


def test_wheel_has_package_program_and_entry_points_and_nothing_else(installed):
    files = {path.relative_to(installed) for path in installed.rglob("*") if path.is_file()}
    names = {path.as_posix() for path in files if "__pycache__" not in path.parts}
    modules = {f"qccl/{path.name}" for path in (ROOT / "python" / "qccl").glob("*.py*")}
    (extension,) = {name for name in names if name.endswith(".so")}
    assert extension.startswith(f"qccl/torch_{RELEASE}/_C.")
    expected = {*modules, "qccl/py.typed", extension, "qccl_autoload.py", "bin/qccl"}
    assert {name for name in names if ".dist-info/" not in name} == expected
    (entry_points,) = installed.glob("qccl-*.dist-info/entry_points.txt")
    for group in ("torch.backends", "torch.distributed.backends"):
        assert f"[{group}]\nqccl=qccl_autoload:register" in entry_points.read_text().replace(" ", "")


# ---- on machines with and without a GPU


def dynamic_section(file: Path) -> tuple[set[str], set[str]]:
    """The libraries that an ELF file needs, without their versions, and the symbols that it takes from them."""
    said = run(["readelf", "--wide", "--dynamic", "--dyn-syms", str(file)])
    needed = {name.split(".so")[0] for name in re.findall(r"\(NEEDED\).*\[(.*)\]", said)}
    return needed, set(re.findall(r" UND ([^@\s]+)", said))


def assert_links_nothing_of_cuda(file: Path, others: set[str]) -> set[str]:
    """The symbols that the file takes from libraries: those of the system, QCCL's dependencies and the others."""
    needed, symbols = dynamic_section(file)
    system = {"libc", "libm", "libstdc++", "libgcc_s", "libdl", "libpthread", "ld-linux-x86-64", "ld-linux-aarch64"}
    assert needed <= {*others, *system, "libfmt", "libhwy", "libssl", "libcrypto"}
    assert [name for name in symbols if re.match("_*(cu[A-Z]|cuda|nvrtc|nvml|nccl)", name)] == []
    return symbols


TORCHS = {"libc10", "libtorch", "libtorch_cpu", "libtorch_python"}


def test_extension_and_program_link_nothing_of_cuda(installed):
    (extension,) = (installed / "qccl").glob("torch_*/_C.*.so")
    for file, others in ((extension, TORCHS), (installed / "bin" / "qccl", set())):
        assert "dlopen" in assert_links_nothing_of_cuda(file, others), "it loads the driver"


def said_by_doctor(installed: Path, topic: str, **variables: str) -> str:
    said = run([str(installed / "bin" / "qccl"), "doctor"], **variables)
    return next(line.removeprefix(topic).strip() for line in said.splitlines() if line.startswith(topic))


def test_one_program_finds_the_driver_where_there_is_one(installed):
    assert said_by_doctor(installed, "devices", **FAKE) == "2, driver 12.0 (docs/gpu.md)"
    command = [str(installed / "bin" / "qccl"), "perf", "all_reduce", "-b", "64K", "-e", "64K", "-g", "2", "-n", "1"]
    assert "Fake device 1" in run([*command, "--device", "cuda"], **FAKE)
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        assert said_by_doctor(installed, "devices").startswith("none: device memory needs NVIDIA's driver: libcuda.so")


def test_kernels_are_for_the_gpus_here_in_two_megabytes_where_there_is_a_compiler(installed):
    kernels = said_by_doctor(installed, "device kernels")
    finds_nvcc = subprocess.run(["cmake", "-P", ROOT / "cmake" / "QcclNvcc.cmake"], capture_output=True).returncode == 0
    if not finds_nvcc:
        assert kernels.startswith("none: built without CUDA's nvcc")
        pytest.skip("there is no nvcc: the wheel has no kernels for GPUs")
    assert re.match(r"PTX, and machine code for sm_\d+", kernels)
    if shutil.which("nvidia-smi") is None:
        assert kernels.startswith("PTX, and machine code for sm_90 ")
    images = [BUILD / "device_kernels" / name for name in ("cubins.fatbin", "kernels.ptx")]
    assert sum(image.stat().st_size for image in images) < 2 * 2**20


def test_the_build_for_the_checkout_is_left_alone(installed):
    assert (BUILD / "bindings" / "torch" / "qccl" / f"torch_{RELEASE}").exists()


# ---- one wheel for several releases of torch


def test_wheel_for_releases_wants_one_of_them(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from wheel_requires import dynamic_metadata

    monkeypatch.setenv("QCCL_TORCH_HEADERS", str(tmp_path))
    with pytest.raises(SystemExit, match="has no headers of torch: run `make wheel`"):
        dynamic_metadata("dependencies", {})
    for release in ("2.9", "2.11", "2.10"):
        (tmp_path / release).mkdir()
    assert dynamic_metadata("dependencies", {}) == ["torch>=2.9,<2.12", "numpy"]
    (tmp_path / "2.10").rmdir()
    with pytest.raises(SystemExit, match="lacks a release between 2.9 and 2.11"):
        dynamic_metadata("dependencies", {})


def test_wheel_for_releases_says_which(installed_for_releases):
    required, numpy = required_by(installed_for_releases)
    major, minor = map(int, RELEASE.split("."))
    assert set(required.removeprefix("torch").split(",")) == {f">={RELEASE}", f"<{major}.{minor + 1}"}
    assert numpy == "numpy"


def test_extensions_of_all_releases_share_the_library(installed_for_releases):
    package = installed_for_releases / "qccl"
    assert "dlopen" in assert_links_nothing_of_cuda(package / "libqccl.so", set())
    (extension,) = package.glob("torch_*/_C.*.so")
    assert assert_links_nothing_of_cuda(extension, TORCHS | {"libqccl"})
    assert dynamic_section(extension)[0] >= TORCHS | {"libqccl"}
    assert extension.stat().st_size < (package / "libqccl.so").stat().st_size


def test_wheel_for_releases_trains(installed_for_releases, tmp_path):
    assert_trains(installed_for_releases, tmp_path)


def test_function_that_torch_lacks_fails_the_import(installed):
    (extension,) = (installed / "qccl").glob("torch_*/_C.*.so")
    assert re.search(r"\(FLAGS_1\).*\bNOW\b", run(["readelf", "--wide", "--dynamic", str(extension)]))


@pytest.mark.parametrize(
    ("releases", "says"),
    [
        (("2.9", "2.10"), "built for torch 2.9, 2.10 and can't work with torch " + re.escape(torch.__version__)),
        ((), r"/qccl has no extension for this Python, 3\.\d+\.\d+: build it by `make build`"),
    ],
)
def test_package_without_the_release_of_torch_says_what_to_do(installed, tmp_path, releases, says):
    other = tmp_path / "qccl"
    shutil.copytree(installed / "qccl", other, ignore=shutil.ignore_patterns("torch_*"))
    shutil.copy(installed / "qccl_autoload.py", tmp_path)
    for release in releases:
        shutil.copytree(installed / "qccl" / f"torch_{RELEASE}", other / f"torch_{release}")
    (other / f"torch_{RELEASE}").mkdir()  # a folder alone is no extension
    done = subprocess.run(
        [sys.executable, "-c", "import qccl"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, cwd="/", capture_output=True, text=True, timeout=LIMIT_SECONDS,
    )  # fmt: skip
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert re.search(says, last) and "pip install ." in last
