"""Every rule of scripts/check_layers.py detects a violation planted in a copy of the sources."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "check_layers.py"
sys.path.insert(0, str(SCRIPT.parent))

import check_layers  # noqa: E402


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the sources to plant violations in."""
    root = tmp_path_factory.mktemp("tree")
    for folder in ("include", "src", "bindings", "tools"):
        if (ROOT / folder).exists():
            shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    # Headers of concrete transports and of the planner, so that the tests do not depend on the tree's own headers.
    for folder in ("transport/tcp", "transport/shm", "plan"):
        (root / "src" / folder).mkdir(parents=True, exist_ok=True)
        (root / "src" / folder / "planted.h").write_text("#pragma once\n")
    return root


def rules_broken(tree: Path, place: str, text: str) -> list[tuple[str, int]]:
    """(rule, line) of each violation found in `text` planted at `place`."""
    path = tree / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    try:
        return [(found.rule, found.line) for found in check_layers.check_file(tree, Path(place), set())]
    finally:
        path.unlink()


FORBIDDEN_INCLUDES = [
    ("src/base/x.cc", "os/fd.h"),
    ("src/os/x.cc", "wire/frame.h"),
    ("src/kernels/x.cc", "codec/codec.h"),
    ("src/codec/x.cc", "os/fd.h"),
    ("src/codec/x/x.cc", "os/fd.h"),
    ("src/engine/x.cc", "codec/minmax/planted.h"),
    ("src/wire/x.cc", "transport/transport.h"),
    ("src/plan/x.cc", "codec/codec.h"),
    ("src/plan/x.cc", "kernels/reduce/reduce.h"),
    ("src/bootstrap/x.cc", "transport/transport.h"),
    ("src/transport/transport.h", "os/fd.h"),
    ("src/transport/x.cc", "transport/tcp/planted.h"),
    ("src/transport/sim/x.cc", "os/fd.h"),
    ("src/transport/sim/x.cc", "wire/frame.h"),
    ("src/transport/tcp/x.cc", "transport/shm/planted.h"),
    ("src/transport/shm/x.cc", "transport/tcp/planted.h"),
    ("src/engine/x.cc", "os/fd.h"),
    ("src/engine/x.cc", "transport/tcp/planted.h"),
    ("src/observe/x.cc", "engine/x.h"),
    ("src/extras/train/x.cc", "codec/codec.h"),
    ("src/extras/train/x.cc", "group/call_poster.h"),
    ("src/kernels/lanes/x.cc", "kernels/reduce/reduce.h"),
    ("src/kernels/sign/x.cc", "kernels/minmax/minmax.h"),
    ("src/codec/sign/x.cc", "codec/minmax/planted.h"),
    ("src/plan/x.cc", "plan/algorithms/registry.h"),
    ("src/plan/algorithms/x.cc", "plan/cost/cost.h"),
    ("src/bootstrap/launcher/x.cc", "bootstrap/store/tcp_store.h"),
    ("src/bootstrap/store/x.cc", "bootstrap/meeting/card_exchange.h"),
    ("src/bootstrap/meeting/x.cc", "bootstrap/mesh/full_mesh.h"),
    ("src/bootstrap/mesh/x.cc", "bootstrap/door/door.h"),
    ("src/engine/frames/x.cc", "engine/call/call_arguments.h"),
    ("src/engine/call/x.cc", "engine/state/operation.h"),
    ("src/engine/compute/x.cc", "engine/state/group.h"),
    ("src/engine/state/x.cc", "engine/run/mailbox.h"),
    ("src/engine/state/x.cc", "engine/act/failure_handler.h"),
    ("src/engine/run/x.cc", "engine/act/failure_handler.h"),
    ("src/engine/shrink/x.cc", "engine/act/group_shrinker.h"),
    ("src/engine/act/x.cc", "engine/engine.h"),
    ("src/engine/x.cc", "engine/progress/progress_driver.h"),
    ("src/choice/x.cc", "job/context.h"),
    ("src/engine/run/x.cc", "device_engine/staged/staged_call.h"),
    ("src/device_engine/staged/x.cc", "device_engine/lanes/device_compute.h"),
    ("src/device_engine/x.cc", "engine/act/call_starter.h"),
    ("src/job/x.cc", "device_engine/staged/staged_call.h"),
    ("src/job/x.cc", "group/call_builder.h"),
    ("src/group/x.cc", "group/growth/grown_group.h"),
    ("src/group/x.cc", "extras/window/window_state.h"),
    ("bindings/torch/x.cc", "base/result.h"),
    ("src/sim/x.cc", "transport/tcp/planted.h"),
    ("src/sim/x.cc", "os/fd.h"),
    ("tools/run/run.cc", "plan/planted.h"),
    ("tools/perf/perf.cc", "os/fd.h"),
    ("tools/plan/plan_show.cc", "sim/simulated_job.h"),
    ("tools/plan/plan_simulate.cc", "engine/engine.h"),
    ("examples/x.cc", "base/clock.h"),
    ("include/qccl/x.h", "base/result.h"),
    ("src/shiny_new_layer/x.cc", "base/clock.h"),
    ("src/wire/x.cc", "frame.h"),
    ("src/wire/x.cc", "wire/no_such_header.h"),
]


@pytest.mark.parametrize(("place", "target"), FORBIDDEN_INCLUDES)
def test_forbidden_include_is_found(tree, place, target):
    held = (tree / place).read_text() if (tree / place).exists() else None
    try:
        assert rules_broken(tree, place, f'#include <vector>\n#include "{target}"\n') == [("include", 2)]
    finally:
        if held is not None:
            (tree / place).write_text(held)


def test_the_table_allows_no_cycle_but_those_it_names(monkeypatch):
    assert set(check_layers.rooms_in_cycles()) == set(check_layers.CYCLES)
    monkeypatch.setitem(check_layers.MAY_INCLUDE, "src/engine/state", ["engine/act/"])
    assert {"engine/state", "engine/act", "engine/run"} <= set(check_layers.rooms_in_cycles())


@pytest.mark.parametrize(
    ("place", "target"),
    [
        ("src/base/x.cc", "base/clock.h"),
        ("src/os/x.cc", "base/result.h"),
        ("src/kernels/x.cc", "qccl/types.h"),
        ("src/plan/x.cc", "codec/geometry.h"),
        ("src/codec/x.cc", "codec/registry.h"),
        ("src/codec/x/x.cc", "codec/codec.h"),
        ("src/transport/tcp/x.cc", "os/fd.h"),
        ("src/transport/tcp/x.cc", "transport/transport.h"),
        ("src/engine/x.cc", "transport/transport.h"),
        ("src/job/x.cc", "transport/tcp/planted.h"),
        ("tools/perf/perf.cc", "plan/planted.h"),
        ("src/sim/x.cc", "transport/sim/network.h"),
        ("tools/plan/plan_simulate.cc", "sim/simulated_job.h"),
        ("tools/codec_table.cc", "codec/codec.h"),
        ("src/engine/x_test.cc", "transport/tcp/planted.h"),
        ("tests/sim/x.cc", "os/fd.h"),
        ("bench/x_bench.cc", "kernels/reduce/reduce.h"),
    ],
)
def test_allowed_include_passes(tree, place, target):
    assert rules_broken(tree, place, f'#include "{target}"\n') == []


FORBIDDEN_THIRD_PARTY = [
    ("src/codec/x.cc", "hwy/highway.h"),
    ("src/engine/x.cc", "gtest/gtest.h"),
    ("src/wire/x.cc", "nlohmann/json.hpp"),
    ("tools/perf/perf.cc", "torch/torch.h"),
    ("include/qccl/x.h", "fmt/format.h"),
    ("include/qccl/x.h", "unistd.h"),
]


@pytest.mark.parametrize(("place", "header"), FORBIDDEN_THIRD_PARTY)
def test_third_party_header_in_the_wrong_place_is_found(tree, place, header):
    assert rules_broken(tree, place, f"#include <{header}>\n") == [("include", 1)]


PLANTED = [
    ("getenv", "src/job/x.cc", 'auto v = std::getenv("RANK");'),
    ("getenv", "bindings/torch/x.cc", 'auto v = secure_getenv("RANK");'),
    ("errno", "src/transport/tcp/x.cc", "if (errno == 11) return;"),
    ("errno", "src/engine/x.cc", "#include <cerrno>"),
    ("intrinsics", "src/codec/x.cc", "#include <immintrin.h>"),
    ("intrinsics", "src/codec/x.cc", "a = _mm256_add_ps(a, b);"),
    ("clock", "src/engine/x.cc", "auto t = std::chrono::steady_clock::now();"),
    ("clock", "src/base/x.cc", "clock_gettime(CLOCK_MONOTONIC, &spec);"),
    ("clock", "src/job/x.cc", "auto seed = time(nullptr);"),
    ("printing", "src/plan/x.cc", 'std::cerr << "lost";'),
    ("printing", "src/plan/x.cc", 'printf("lost");'),
    ("printing", "src/plan/x.cc", 'fprintf(stderr, "lost");'),
    ("printing", "src/plan/x.cc", 'fmt::print("lost");'),
    ("printing", "src/plan/x.cc", "::write(STDERR_FILENO, text, 4);"),
    ("release", "bindings/torch/x.cc", "#include <torch/version.h>"),
    ("release", "bindings/torch/x.h", "#if TORCH_VERSION_MINOR > 12"),
    ("release", "bindings/torch/x.h", "#ifdef C10D_BACKEND_HAS_HOOKS"),
    ("abort", "src/wire/x.cc", "if (bad) std::abort();"),
    ("abort", "src/wire/x.cc", "if (bad) { abort(); }"),
    ("abort", "src/wire/x.cc", "if (bad) exit(1);"),
    ("abort", "src/wire/x.cc", "assert(bytes > 0);"),
]


@pytest.mark.parametrize(("rule", "place", "statement"), PLANTED)
def test_what_must_be_absent_is_found(tree, rule, place, statement):
    text = f"// A file.\nvoid f() {{\n{statement}\n}}\n"
    assert rules_broken(tree, place, text) == [(rule, 3)]


@pytest.mark.parametrize(
    ("place", "statement"),
    [
        ("src/base/environment_x.cc", "x"),
        ("src/wire/x.cc", "// std::abort() and errno in a comment"),
        ("src/wire/x.cc", 'auto text = "printf( getenv( errno";'),
        ("src/wire/x.cc", 'auto text = R"(std::cerr << 1)";'),
        ("src/wire/x.cc", "static_assert(sizeof(int) == 4);"),
        ("src/wire/x.cc", 'snprintf(buffer, 4, "x");'),
        ("src/job/x.cc", 'group.abort("reason"); group->abort("reason");'),
        ("src/job/x.cc", "clock.now();"),
        ("src/os/x.cc", "return errno;"),
        ("src/kernels/x.cc", "a = _mm256_add_ps(a, b);"),
        ("src/wire/x_test.cc", 'setenv("A", "B", 1); std::cerr << getenv("A");'),
    ],
)
def test_innocent_code_passes(tree, place, statement):
    assert rules_broken(tree, place, f"void f() {{\n{statement}\n}}\n") == []


@pytest.mark.parametrize(
    "text",
    [
        "int counter = 0;",
        "static int counter;",
        "namespace a { namespace { std::atomic<int> counter{0}; } }",
        "std::map<std::string, std::vector<int>> counter;",
        "const char* counter = nullptr;",
        "thread_local int counter = 0;",
        "inline std::mutex counter;",
        "extern int counter;",
        "Widget counter(3);",
        "void f() { static int counter = 0; }",
        "int f() {\n  static std::vector<int> counter = [] { return std::vector<int>{1}; }();\n  return counter[0];\n}",
        "struct S { static int counter; };",
        "struct S { inline static std::atomic<int> counter{0}; };",
        "class S {\n public:\n  static int counter;\n};",
        "constinit std::array<int, 3> counter{};",
    ],
)
def test_mutable_global_is_found(tree, text):
    found = rules_broken(tree, "src/engine/x.cc", text + "\n")
    assert [rule for rule, _ in found] == ["mutable-global"]


@pytest.mark.parametrize(
    "text",
    [
        "constexpr int kLimit = 3;",
        'inline constexpr std::string_view kNames[] = {"a", "b"};',
        "const std::map<int, int> kTable = {{1, 2}};",
        "const char* const kName = nullptr;",
        "static const int kLimit = 3;",
        "int f(int a, int b = 3);",
        "static int f(int a) { return a; }",
        "template <class T> T load(const std::byte* from) { T value; return value; }",
        "struct S { int a = 0; static S make(); static constexpr int kB = 2; };",
        "struct S;\nenum class E : int { a, b };\nusing T = int;",
        "void f() { static const int limit = [] { return 3; }(); int local = limit; }",
        "S::S(int a) : a_{a}, b_(2) {}\nbool operator==(const S& a, const S& b) { return true; }",
        "static_assert(sizeof(int) == 4);",
        'extern "C" void f(int);',
        "auto f = 1'000'000;".replace("auto", "constexpr auto"),
    ],
)
def test_what_is_no_mutable_global_passes(tree, text):
    assert rules_broken(tree, "src/engine/x.cc", text + "\n") == []


def test_named_exception_passes_and_a_stale_one_is_found(tree, monkeypatch):
    key = ("src/engine/planted.cc", "counter")
    monkeypatch.setattr(check_layers, "MUTABLE_GLOBALS", {key: "planted"})
    path = tree / key[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.write_text("int counter = 0;\n")
        assert not [found for found in check_layers.check(tree) if found.path == Path(key[0])]
        path.write_text("constexpr int kLimit = 0;\n")
        assert [found.rule for found in check_layers.check(tree) if found.path == Path(key[0])] == ["mutable-global"]
    finally:
        path.unlink()


def run_script(root: Path) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, str(SCRIPT), str(root)], capture_output=True, text=True)


def test_script_fails_and_names_file_line_rule_and_remedy(tree):
    path = tree / "src/wire/planted.cc"
    path.write_text("\nint f() {\n  return errno;\n}\n")
    try:
        result = run_script(tree)
    finally:
        path.unlink()
    assert result.returncode == 1
    assert "src/wire/planted.cc:3: [errno] errno: errno is seen only in src/os" in result.stdout
