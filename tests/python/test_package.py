"""The package: what the wheel and the source archive contain, and what a release must agree on."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import extras
import harness
import pytest
import release
import smoke

ROOT = Path(__file__).parents[2]
#: Played in an environment that has the wheel: the guides' code, every help text, wrong arguments.
NEWCOMER = [
    *("test_docs.py", "test_newcomer.py", "test_newcomer_modules.py"),
    *("cli/test_cli_docs.py", "cli/test_cli_newcomer.py"),
    *("cli/test_cli_wrong.py", "cli/test_cli_errors.py"),
]


@pytest.fixture(scope="module")
def wheel():
    """Return the wheel that make has built beside the extension."""
    found = list((ROOT / "target" / "wheel").glob("*.whl"))
    if len(found) != 1:
        harness.lacks("wheel", "there is no wheel: run `make target/wheel/.ready`")
    return found[0]


@pytest.fixture(scope="module")
def fresh(wheel, tmp_path_factory):
    """Return the interpreter of an environment with the wheel, and with the packages of this one.

    Those come from their folder: the package that is installed in place is not among them, since
    its folder is named by a file that only a folder of the environment's own may have.
    """
    folder = tmp_path_factory.mktemp("fresh") / "env"
    venv.create(folder)
    python = folder / "bin" / "python"
    # A pip of its own would take longer to install than the wheel.
    words = ["-m", "pip", "--python", python, "install", "--quiet", "--no-index"]
    words += ["--disable-pip-version-check"]
    subprocess.run([sys.executable, *words, wheel], check=True)
    ours = sysconfig.get_path("purelib")
    theirs = sysconfig.get_path("purelib", vars={"base": str(folder)})
    Path(theirs, "packages.pth").write_text(ours + "\n")
    return python


def test_the_wheel_is_complete_and_survives_a_kill(wheel):
    smoke.smoke(wheel)


def test_a_smoke_test_fails_if_a_file_is_missing(wheel, tmp_path):
    poor = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(poor, "w") as part:
        for name in whole.namelist():
            if name != "forebay/console/static/index.html":
                part.writestr(name, whole.read(name))
    with pytest.raises(SystemExit):
        smoke.smoke(poor)


def test_a_newcomer_gets_along_with_the_wheel(fresh):
    """The guides' code, each help text, and wrong values of each argument, with the wheel."""
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    where = subprocess.run(
        [fresh, "-c", "import forebay; print(forebay.__file__)"],
        cwd=fresh.parent, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(where.stdout).is_relative_to(fresh.parents[1])
    tests = [str(ROOT / "tests" / "python" / name) for name in NEWCOMER]
    done = subprocess.run(
        [fresh, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", *tests],
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-20_000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 200


def test_the_gate_leaves_the_newcomers_tests_to_the_wheel_and_runs_them_with_it():
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    ignored = re.search(r"^NEWCOMER := (.*)$", makefile, re.MULTILINE)[1]
    assert ignored.split() == [f"tests/python/{name}" for name in NEWCOMER]


def test_the_source_archive_has_what_a_build_needs_and_nothing_big(tmp_path):
    maturin = Path(sys.executable).with_name("maturin")
    if not maturin.exists():
        pytest.skip("maturin is not installed")
    subprocess.run([maturin, "sdist", "--out", tmp_path], cwd=ROOT, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    assert archive.stat().st_size < 3 << 20
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    crate = {str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.rs")}
    package = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "python").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
    }
    needed = (
        crate | package | {"Cargo.toml", "Cargo.lock", "pyproject.toml", "README.md", "LICENSE"}
    )
    assert needed - names == set()
    assert not [name for name in names if name.endswith((".so", ".pyc"))]


def test_a_release_needs_the_tag_of_the_version_its_changes_and_its_address(tmp_path):
    for name in ("Cargo.toml", "pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["package"]["version"]
    with (tmp_path / "CHANGELOG.md").open("a") as changes:
        changes.write(f"\n## [{version}] - 2026-12-01\n")
    assert release.problems(tmp_path, f"v{version}", "forebay/forebay") == []
    (tag,) = release.problems(tmp_path, "v9.9.9", "forebay/forebay")
    assert tag == f"the tag is v9.9.9, but Cargo.toml says {version}, so it must be v{version}"
    (place,) = release.problems(tmp_path, f"v{version}", "someone/fork")
    assert "someone/fork" in place
    text = (tmp_path / "CHANGELOG.md").read_text().replace(f"[{version}]", "[9.9.9]")
    (tmp_path / "CHANGELOG.md").write_text(text)
    (changes,) = release.problems(tmp_path, f"v{version}", "forebay/forebay")
    assert changes == f"CHANGELOG.md has no section [{version}]"


def test_the_workflow_of_wheels_tries_each_package_that_it_keeps():
    text = (ROOT / ".github" / "workflows" / "wheels.yml").read_text()
    jobs = dict(
        re.findall(r"^  (\w+):\n(.*?)(?=^  \w+:\n|\Z)", text.split("\njobs:\n")[1], re.S | re.M)
    )
    for name, job in jobs.items():
        if "upload-artifact" in job:
            assert "tests/support/smoke.py" in job.partition("upload-artifact")[0], name
            assert "needs: version" in job, name
    assert "id-token: write" in jobs["publish"] and "secrets." not in text


def test_the_tests_that_only_a_proof_runs_here_run_for_each_change_elsewhere():
    """They need environments of their own, which take minutes to install."""
    proof = re.search(r"^proof-python: dev.*?\n\n", (ROOT / "Makefile").read_text(), re.S | re.M)[0]
    targets = set(re.findall(r"\btest-[\w-]+", proof))
    assert targets == {"test-oldest", "test-spark-extra", "test-extras"}
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert targets <= set(re.search(r"target: \[(.*?)\]", text)[1].split(", "))
    assert "run: make ${{ matrix.target }}\n" in text
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    # Plots are of a report of Spark.
    assert set(extras.PROGRAMS) == set(project["optional-dependencies"]) - {
        "all",
        "report",
        "spark",
    }


def test_the_workflows_name_each_action_by_its_commit():
    """A tag can be moved to other code after it was read."""
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        for line in re.findall(r"uses: .*", path.read_text()):
            assert re.fullmatch(r"uses: [\w/-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", line), path.name
