"""Tables of visits: read, checked, and refused where they are wrong."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from peephole.data import DataError, DataWarning, read_table

GOOD = "id,time,x,y,diagnosis,sex\na,0,1,10,CN,f\na,12,2,,CN,f\na,24,3,30,MCI,f\nb,0,4,40,,m\nb,13,5,50,AD,m\n"


def file(folder: Path, text: str) -> Path:
    """Write a table."""
    path = folder / "visits.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_good_table(tmp_path: Path) -> None:
    """A good file gives its numbers, features that change, covariates that do not, and no warning."""
    table = read_table(file(tmp_path, GOOD))
    assert (table.features, table.covariates, table.has_diagnosis) == (("x", "y"), ("sex",), True)
    assert table.frame["id"].tolist() == ["a", "a", "a", "b", "b"]
    assert table.frame["x"].tolist() == [1, 2, 3, 4, 5]
    assert table.frame["y"].isna().tolist() == [False, True, False, False, False]
    assert table.frame["diagnosis"].tolist() == ["CN", "CN", "MCI", "", "AD"]
    assert table.lines == (2, 3, 4, 5, 6)
    assert str(table.report) == "5 of 5 rows kept; covariates, for they never change within a subject: sex"


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + GOOD,
        GOOD.replace("\n", "\r\n"),
        GOOD.replace("\n", "\n\n"),
        GOOD.replace("a,", '"a",'),
        GOOD.replace(",", " , "),
        GOOD.replace("12,2,,", "12,2,NA,"),
        GOOD.replace("12,2,,", "12,2, NaN ,"),
    ],
)
def test_harmless_forms(tmp_path: Path, text: str) -> None:
    """A byte order mark, line ends, blank lines, quotes, blanks and words for missing change nothing."""
    same = read_table(file(tmp_path, GOOD)).frame
    assert read_table(file(tmp_path, text)).frame.equals(same)


WARNED = [
    ("a,24,3,30", "a,12,3,30", "1 row with an (id, time) seen before, first a at 12"),
    ("b,0,4,40", "b,0,4,>1700", "column 'y': 1 cell such as '>1700' taken as the number"),
    ("b,0,4,40", "b,0,<200,<80", "column 'x': 1 cell such as '<200' taken as the number; column 'y': 1 cell such as"),
    ("b,0,4,40", "b,0,inf,40", "column 'x': 1 infinite value taken as missing, first in line 5"),
    ("b,0,4,40", "b,0,-1e999,40", "column 'x': 1 infinite value taken as missing, first in line 5"),
    ("b,13,5,50,AD,m\n", "", "1 subject with one visit"),
    ("b,0,4,40", "b,,4,40", "1 row without a time dropped, first {path}:5; 1 subject with one visit"),
    ("diagnosis", "dx", "no diagnosis: there is no column 'diagnosis'"),
    ("b,13,", "b,4000,", "column 'time' reaches 4000 months: is its unit months?"),
]


@pytest.mark.parametrize(("old", "new", "message"), WARNED)
def test_odd_tables_warn_once_with_counts(tmp_path: Path, old: str, new: str, message: str) -> None:
    """What is odd is said in one warning with counts, which stands in the report, too."""
    path = file(tmp_path, GOOD.replace(old, new))
    with pytest.warns(DataWarning) as caught:
        table = read_table(path)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert str(caught[0].message) == f"{path}: {'; '.join(table.report.warnings)}"
    assert message.format(path=path) in str(caught[0].message)


def test_values_of_odd_cells(tmp_path: Path) -> None:
    """Of `>1700` the number is taken, in place of an infinite value nothing, and the other cells stay."""
    text = GOOD.replace("b,0,4,40", "b,0,inf,>1700").replace("b,13,5,50", "b,13,5,<= 80.5")
    with pytest.warns(DataWarning):
        frame = read_table(file(tmp_path, text)).frame
    np.testing.assert_array_equal(frame["x"], [1, 2, 3, np.nan, 5])
    np.testing.assert_array_equal(frame["y"], [10, np.nan, 30, 1700, 80.5])


def test_feature_never_observed(tmp_path: Path) -> None:
    """A feature without any value is named, and stays, so that the model keeps its shape."""
    text = re.sub(r"(?m)^(\w,\d+,\d),\d*", r"\1,", GOOD)
    with pytest.warns(DataWarning, match="never observed: y$"):
        table = read_table(file(tmp_path, text))
    assert table.features == ("x", "y")


def test_diagnosis_never_known(tmp_path: Path) -> None:
    """An empty column of diagnoses is worth a warning; none is, if none is asked for."""
    path = file(tmp_path, re.sub("CN|MCI|AD", "", GOOD))
    with pytest.warns(DataWarning, match="no diagnosis: column 'diagnosis' is empty"):
        read_table(path)
    assert not read_table(path, diagnosis=None).has_diagnosis


REFUSED = [
    ("b,0,4,40", "b,0,big,40", ":5: column 'x': 'big', expected a number"),
    ("b,0,4,40", 'b,0,"4,5",40', ":5: column 'x': '4,5', expected a number"),
    ("b,0,4,40", "b,0,1_0,40", ":5: column 'x': '1_0', expected a number"),
    ("b,0,4,40", "b,0,>,40", ":5: column 'x': '>', expected a number"),
    ("b,0,4,40", "b,2012-03-01,4,40", ":5: column 'time': '2012-03-01', expected dates only or numbers only, found"),
    ("b,0,4,40", "b,soon,4,40", ":5: column 'time': 'soon', expected a number"),
    ("b,0,4,40", ",0,4,40", ":5: column 'id': empty, expected the subject's name"),
    ("b,0,4,40", "b,0,4", ":5: 5 cells, expected 6"),
    ("b,0,4,40", "b,0,4,40,1", ":5: 7 cells, expected 6"),
    ("b,0,4,40", 'b,0,4,"40', ": not a CSV file: unexpected end of data"),
    ("id,", "name,", ": no column 'id'; its columns are name, time, x, y, diagnosis, sex"),
    ("x,y", "x,x", ":1: column 'x' stands there twice"),
    (",", ";", ": no column 'id' if cut at ','; the right delimiter seems to be ';'"),
    (",", "\t", ": no column 'id' if cut at ','; the right delimiter seems to be a tab"),
    (GOOD, "", ": an empty file, expected a line of column names and rows below"),
    (GOOD, " \n\n", ": an empty file, expected a line of column names and rows below"),
    (GOOD, "id,time,x\n", ": a line of column names without rows, expected at least one"),
    (GOOD, "id,time,sex\na,0,f\na,1,f\n", ": no feature, expected a column of numbers that change from visit to"),
    (GOOD, "id,time,x\na,,1\na,,2\n", ": no row has a time"),
]


@pytest.mark.parametrize(("old", "new", "message"), REFUSED)
def test_wrong_tables_are_refused_in_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    """What cannot be used is refused in one line, with file, row and column where there is one."""
    path = file(tmp_path, GOOD.replace(old, new))
    with pytest.raises(DataError) as caught:
        read_table(path)
    assert str(caught.value).startswith(f"{path}{message}")
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A file that is not there, a folder and a spreadsheet are each refused by name."""
    (tmp_path / "book.xlsx").write_bytes(b"PK\x03\x04\xff\xfe\x00")
    for name, message in (("no.csv", "No such file"), (".", "Is a directory"), ("book.xlsx", "not text in UTF-8")):
        with pytest.raises(DataError, match=f"{re.escape(str(tmp_path / name))}: {message}"):
            read_table(tmp_path / name)


def test_line_numbers_count_lines_of_the_file(tmp_path: Path) -> None:
    """The line in an error is the file's, blank lines and breaks within quotes counted."""
    text = 'id,time,x,note\n\na,0,1,"two\nlines"\na,12,2,-\na,24,?,-\n'
    with pytest.raises(DataError, match=r"visits.csv:6: column 'x': '\?', expected a number"):
        read_table(file(tmp_path, text))


def test_other_names_and_delimiters(tmp_path: Path) -> None:
    """Columns of other names are told, and so is the delimiter; what is not named is left out."""
    path = file(tmp_path, "who;day;x;y;z\n7;0;1;2;a1\n7;365;2;3;5\n8;0;1;1;b\n8;731;1;1;\n")
    table = read_table(path, id="who", time="day", unit="days", features=["y"], diagnosis=None, delimiter=";")
    assert table.features == ("y",)
    assert list(table.frame.columns) == ["id", "time", "y"]
    np.testing.assert_allclose(table.frame["time"], np.array([0, 365, 0, 731]) / 365.25 * 12)
    with pytest.raises(DataError, match=":2: column 'z': 'a1', expected a number"):
        read_table(path, id="who", time="day", unit="days", diagnosis=None, delimiter=";")
    with pytest.raises(DataError, match="no column 'dx'"):
        read_table(path, id="who", time="day", diagnosis="dx", delimiter=";")
    with pytest.raises(DataError, match="delimiter ';;': expected one character"):
        read_table(path, delimiter=";;")


def test_dates_become_months_since_the_first(tmp_path: Path) -> None:
    """Dates are months since the subject's first, in whatever order the rows are; a wrong date is named."""
    text = "id,time,x\na,2013-03-01,1\na,2012-03-01,2\nb,2011/7/9,3\nb,2011-10-09T10:00,4\n"
    table = read_table(file(tmp_path, text), diagnosis=None)
    np.testing.assert_allclose(table.frame["time"], np.array([365, 0, 0, 92]) / 365.25 * 12)
    with pytest.raises(DataError, match=":2: column 'time': '2013-02-30' is no date, expected YYYY-MM-DD"):
        read_table(file(tmp_path, text.replace("2013-03-01", "2013-02-30")), diagnosis=None)


def test_importing_the_room_stays_light() -> None:
    """Importing the room loads neither pandas nor torch; a made-up cohort loads pandas."""
    code = "import sys, peephole.data as d; print('pandas' in sys.modules, 'torch' in sys.modules, end=' ');"
    code += "d.synthetic.cohort(2, seed=0); print('pandas' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.split() == ["False", "False", "True"]
