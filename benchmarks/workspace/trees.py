"""Directories of real files, unpacked from packages of PyPI: about 2,000, 20,000 and 100,000 of them."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

# mkdocs-material has directories of thousands of icons: real trees have some large directories, too.
PACKAGES = (
    "sympy==1.13.3", "ansible==12.3.0", "mkdocs-material==9.5.49", "botocore==1.35.0", "django==5.1", "plotly==5.24.1",
    "msgraph-sdk==1.12.0",
    "oci==2.140.0", "pulumi-azure-native==2.73.1", "ansible==10.7.0", "ansible==8.7.0",
)  # fmt: skip
SIZES = {"2k": 2_000, "20k": 20_000, "100k": 100_000}


def make(name: str, where: Path, downloads: Path) -> Path:
    """The directory of that name, made if it is not there. Every tool is to see every file: so no ignore files."""
    root = where / name
    if root.exists():
        return root
    making = where / f"{name}.making"
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    count = 0
    for package in PACKAGES:
        archive = _downloaded(package, downloads)
        if archive is None:
            print(f"  {package} can't be had: left out", file=sys.stderr)
            continue
        count += _unpack(archive, making / archive.name.split("-py")[0], SIZES[name] - count)
        if count >= SIZES[name]:
            break
    making.rename(root)
    return root


def _downloaded(package: str, downloads: Path) -> Path | None:
    where = downloads / package.replace("==", "-")
    if not any(where.glob("*")):
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", where, package]
        if subprocess.run(command, check=False, capture_output=True).returncode:
            return None
    return next(where.glob("*"), None)


def _unpack(archive: Path, to: Path, most: int) -> int:
    """Unpacks at most so many files; how many these were."""
    count = 0
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as packed:
            names = [name for name in packed.namelist() if not name.endswith("/") and not _is_rule(name)]
            for name in names[:most]:
                packed.extract(name, to)
            return min(len(names), most)
    with tarfile.open(archive) as packed:
        for member in packed:
            if member.isfile() and not _is_rule(member.name) and count < most:
                packed.extract(member, to, filter="data")
                count += 1
    return count


def _is_rule(name: str) -> bool:
    return name.rpartition("/")[2] in (".gitignore", ".gitattributes", ".gitmodules")
