"""ADNIMERGE and TADPOLE_D1_D2 in every spelling, written here without a word of ADNI's data."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from peephole.data import DataError, DataWarning, Table, adni, to_grid

OLD_TEXT = """
RID PTID VISCODE SITE COLPROT ORIGPROT EXAMDATE DX_bl AGE PTGENDER PTEDUCAT PTETHCAT PTRACCAT PTMARRY APOE4 FDG PIB
AV45 CDRSB ADAS11 ADAS13 MMSE RAVLT_immediate RAVLT_learning RAVLT_forgetting RAVLT_perc_forgetting FAQ MOCA
EcogPtMem EcogPtLang EcogPtVisspat EcogPtPlan EcogPtOrgan EcogPtDivatt EcogPtTotal EcogSPMem EcogSPLang
EcogSPVisspat EcogSPPlan EcogSPOrgan EcogSPDivatt EcogSPTotal FLDSTRENG FSVERSION Ventricles Hippocampus WholeBrain
Entorhinal Fusiform MidTemp ICV DX EXAMDATE_bl CDRSB_bl ADAS11_bl ADAS13_bl MMSE_bl RAVLT_immediate_bl
RAVLT_learning_bl RAVLT_forgetting_bl RAVLT_perc_forgetting_bl FAQ_bl FLDSTRENG_bl FSVERSION_bl Ventricles_bl
Hippocampus_bl WholeBrain_bl Entorhinal_bl Fusiform_bl MidTemp_bl ICV_bl MOCA_bl EcogPtMem_bl EcogPtLang_bl
EcogPtVisspat_bl EcogPtPlan_bl EcogPtOrgan_bl EcogPtDivatt_bl EcogPtTotal_bl EcogSPMem_bl EcogSPLang_bl
EcogSPVisspat_bl EcogSPPlan_bl EcogSPOrgan_bl EcogSPDivatt_bl EcogSPTotal_bl FDG_bl PIB_bl AV45_bl Years_bl Month_bl
Month M update_stamp
"""
RECENT_TEXT = """
RID COLPROT ORIGPROT PTID SITE VISCODE EXAMDATE DX_bl AGE PTGENDER PTEDUCAT PTETHCAT PTRACCAT PTMARRY APOE4 FDG PIB
AV45 FBB ABETA TAU PTAU CDRSB ADAS11 ADAS13 ADASQ4 MMSE RAVLT_immediate RAVLT_learning RAVLT_forgetting
RAVLT_perc_forgetting LDELTOTAL DIGITSCOR TRABSCOR FAQ MOCA EcogPtMem EcogPtLang EcogPtVisspat EcogPtPlan
EcogPtOrgan EcogPtDivatt EcogPtTotal EcogSPMem EcogSPLang EcogSPVisspat EcogSPPlan EcogSPOrgan EcogSPDivatt
EcogSPTotal FLDSTRENG FSVERSION IMAGEUID Ventricles Hippocampus WholeBrain Entorhinal Fusiform MidTemp ICV DX
mPACCdigit mPACCtrailsB EXAMDATE_bl CDRSB_bl ADAS11_bl ADAS13_bl ADASQ4_bl MMSE_bl RAVLT_immediate_bl
RAVLT_learning_bl RAVLT_forgetting_bl RAVLT_perc_forgetting_bl LDELTOTAL_BL DIGITSCOR_bl TRABSCOR_bl FAQ_bl
mPACCdigit_bl mPACCtrailsB_bl FLDSTRENG_bl FSVERSION_bl IMAGEUID_bl Ventricles_bl Hippocampus_bl WholeBrain_bl
Entorhinal_bl Fusiform_bl MidTemp_bl ICV_bl MOCA_bl EcogPtMem_bl EcogPtLang_bl EcogPtVisspat_bl EcogPtPlan_bl
EcogPtOrgan_bl EcogPtDivatt_bl EcogPtTotal_bl EcogSPMem_bl EcogSPLang_bl EcogSPVisspat_bl EcogSPPlan_bl
EcogSPOrgan_bl EcogSPDivatt_bl EcogSPTotal_bl ABETA_bl TAU_bl PTAU_bl FDG_bl PIB_bl AV45_bl FBB_bl Years_bl Month_bl
Month M update_stamp
"""
OLD, RECENT = OLD_TEXT.split(), RECENT_TEXT.split()
R_EXPORT = ["", *(name.replace("_", ".") for name in RECENT)]
# As the challenge spells its columns: D1 and D2 after SITE, DXCHANGE after DX_bl, and more appended.
TADPOLE = [
    *OLD[:4],
    "D1",
    "D2",
    *OLD[4:8],
    "DXCHANGE",
    *OLD[8:],
    "ST103CV_UCSFFSX_11_02_15",
    "ABETA_UPENNBIOMK9_04_19_17",
]
FORMS = {"2016": OLD, "recent": RECENT, "R": R_EXPORT, "TADPOLE": TADPOLE}


def row(rid: object = 2, month: int = 0, **cells: object) -> dict[str, str]:
    """A visit as ADNI writes it: Ventricles are 0.02 of ICV, Hippocampus 0.005, and so on."""
    volumes = dict(zip(adni.SIX, (30000, 7500, 1050000, 18000, 21000, 3900), strict=True))
    usual = {
        "RID": rid,
        "PTID": f"011_S_{rid:>04}",
        "VISCODE": f"m{month:02d}" if month else "bl",
        "EXAMDATE": f"{2005 + month // 12}-{9 + month % 12 // 6 * 3:02d}-08",
        "EXAMDATE_bl": "2005-09-08",
        "DX_bl": "LMCI",
        "DX": "MCI",
        "DXCHANGE": "2",
        "AGE": 74.3,
        "PTGENDER": "Male",
        "ICV": 1500000,
        "Month_bl": month + (0.2 if month else 0.0),
        "Years_bl": (month + (0.2 if month else 0.0)) / 12,
        "D1": 1,
        "D2": int(rid == 101),
        **volumes,
    }
    return {name: str(cell) for name, cell in (usual | cells).items()}


def write(path: Path, rows: list[dict[str, str]], form: str = "2016", *, quote: bool = False, empty: str = "") -> Path:
    """Write rows with all the columns of this form."""
    columns = FORMS[form]
    spelled = {name.replace(".", "_"): name for name in columns}
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL if quote else csv.QUOTE_MINIMAL)
        writer.writerow(columns)
        for number, cells in enumerate(rows, 1):
            filled = dict.fromkeys(columns, empty)
            filled |= {spelled[name]: cell for name, cell in cells.items() if name in spelled}
            writer.writerow([str(number) if name == "" else filled[name] for name in columns])
    return path


def read(path: Path, **options: Any) -> Table:
    """Read a file that is worth a warning: it is one, of all that the report has."""
    with pytest.warns(DataWarning) as caught:
        table = adni.read(path, **options)
    assert [str(warning.message) for warning in caught] == [f"{path}: {'; '.join(table.report.warnings)}"]
    return table


COURSE = [row(month=month) for month in (0, 6, 12, 24)]


@pytest.mark.parametrize("quote", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_all_forms_are_the_same_table(tmp_path: Path, form: str, quote: bool) -> None:
    """Old and recent ADNIMERGE, R's spelling and TADPOLE, quoted or not, give the same tidy table."""
    table = adni.read(write(tmp_path / "a.csv", COURSE, form, quote=quote))
    frame = table.frame
    names = [f"{name}_ICV" for name in ("Ventricles", "Hippocampus", "WholeBrain", "Fusiform", "MidTemp", "Entorhinal")]
    assert list(frame.columns) == ["id", "time", *names, "diagnosis", "age"]
    assert table.features == tuple(names)
    assert table.covariates == ("age",)
    assert frame["id"].tolist() == [2] * 4
    assert frame["time"].tolist() == [0.0, 6.2, 12.2, 24.2]
    np.testing.assert_allclose(frame[names], [[0.02, 0.005, 0.7, 0.012, 0.014, 0.0026]] * 4, rtol=1e-15)
    assert frame["diagnosis"].tolist() == ["MCI"] * 4
    assert frame["age"].tolist() == [74.3] * 4
    assert str(table.report) == "4 of 4 rows kept"
    assert table.lines == (2, 3, 4, 5)


def test_yearly_grid(tmp_path: Path) -> None:
    """On a yearly grid the visit at half a year has no place, the others have."""
    grid = to_grid(adni.read(write(tmp_path / "a.csv", COURSE)))
    assert grid.times.tolist() == [[0.0, 12.2, 24.2]]
    assert [(drop.row, drop.why) for drop in grid.report.drops] == [(3, "more than 4 months off the grid")]
    assert grid.covariates["age"].tolist() == [74.3]


@pytest.mark.parametrize("empty", ["", " ", "NA", "-4", "-4.0", "NaN"])
def test_missing_cells(tmp_path: Path, empty: str) -> None:
    """Empty cells, single blanks, NA and -4 are missing volumes; a number beside them is not."""
    rows = [row(), row(month=12, Hippocampus=empty), row(month=24, ICV=empty)]
    frame = adni.read(write(tmp_path / "a.csv", rows, "TADPOLE", empty=empty)).frame
    assert np.isnan(frame["Hippocampus_ICV"]).tolist() == [False, True, True]
    assert np.isnan(frame["Ventricles_ICV"]).tolist() == [False, False, True]


def test_other_features_stand_as_they_are(tmp_path: Path) -> None:
    """A column that is no volume is not divided, LDELTOTAL_BL is found by any capitals, and R's names by ours."""
    rows = [row(ADAS13="18.67", ABETA=">1700", LDELTOTAL_BL="4"), row(month=12, ADAS13="20", ABETA="741.5")]
    path = write(tmp_path / "a.csv", rows, "R")
    table = read(path, features=["ADAS13", "ABETA", "Hippocampus", "LDELTOTAL_bl"], covariates=["AGE", "PTGENDER"])
    assert table.features == ("ADAS13", "ABETA", "Hippocampus_ICV", "LDELTOTAL_bl")
    assert table.frame["ADAS13"].tolist() == [18.67, 20.0]
    assert table.frame["ABETA"].tolist() == [1700.0, 741.5]
    assert table.frame["PTGENDER"].tolist() == ["Male", "Male"]
    assert table.report.warnings[0] == "column 'ABETA': 1 cell such as '>1700' taken as the number"


@pytest.mark.parametrize(
    ("dx", "change", "first", "expected"),
    [
        ("NL", "", "", "CN"),
        ("CN", "", "", "CN"),
        ("MCI", "", "", "MCI"),
        ("Dementia", "", "", "AD"),
        ("MCI to Dementia", "5", "CN", "AD"),
        ("Dementia to MCI", "", "", "MCI"),
        ("NL to MCI", "", "", "MCI"),
        ("MCI to NL", "", "", "CN"),
        *[
            ("", str(code), "AD", name)
            for code, name in zip("179248356", ["CN"] * 3 + ["MCI"] * 3 + ["AD"] * 3, strict=True)
        ],
        ("", "5.0", "", "AD"),
        ("-4", "-1", "SMC", "CN"),
        (" ", " ", "EMCI", "MCI"),
        ("", "", "LMCI", "MCI"),
        ("", "", "AD", "AD"),
        ("", "-4", "", ""),
    ],
)
def test_diagnosis_codes(tmp_path: Path, dx: str, change: str, first: str, expected: str) -> None:
    """DX counts, old names and changes too, else DXCHANGE, else at baseline DX_bl; and blank is unknown."""
    rows = [row(DX=dx, DXCHANGE=change, DX_bl=first), row(month=12, DX="MCI")]
    assert adni.read(write(tmp_path / "a.csv", rows, "TADPOLE")).frame["diagnosis"][0] == expected


def test_baseline_diagnosis_is_of_baseline_only(tmp_path: Path) -> None:
    """At a later visit DX_bl says nothing."""
    rows = [row(DX="", DX_bl="AD"), row(month=12, DX="", DX_bl="AD")]
    table = adni.read(write(tmp_path / "a.csv", rows))
    assert table.frame["diagnosis"].tolist() == ["AD", ""]
    assert table.report.notes == ("1 diagnosis at baseline from DX_bl",)


def test_contradicting_diagnoses(tmp_path: Path) -> None:
    """Where DX and DXCHANGE contradict each other DX is taken, and the rows are counted."""
    table = read(write(tmp_path / "a.csv", [row(DX="NL", DXCHANGE="3"), row(month=12)], "TADPOLE"))
    assert table.frame["diagnosis"].tolist() == ["CN", "MCI"]
    assert table.report.warnings == ("1 row with a DXCHANGE that contradicts DX, DX taken",)


@pytest.mark.parametrize(
    ("gone", "expected", "source"),
    [
        ((), 12.2, None),
        (("Month_bl",), 12.2, "Years_bl"),
        (("Month_bl", "Years_bl"), 365 * 12 / 365.25, "EXAMDATE"),
        (("Month_bl", "Years_bl", "EXAMDATE_bl"), 365 * 12 / 365.25, "EXAMDATE"),
        (("Month_bl", "Years_bl", "EXAMDATE"), 12.0, "VISCODE"),
    ],
)
def test_time_of_a_visit(tmp_path: Path, gone: tuple[str, ...], expected: float, source: str | None) -> None:
    """The month is that of the most exact column that has one, and the report counts the others."""
    rows = [row(), row(2, 12, **dict.fromkeys(gone, ""))]
    table = adni.read(write(tmp_path / "a.csv", rows))
    assert table.frame["time"].tolist() == [0.0, pytest.approx(expected, rel=1e-12)]
    assert table.report.notes == ((f"1 time from {source}",) if source else ())


def test_wrong_date_is_noticed(tmp_path: Path) -> None:
    """A visit a year off its VISCODE is counted with its line; one a month off is not."""
    table = read(write(tmp_path / "a.csv", [row(), row(month=12, Month_bl=13.2), row(month=24, Month_bl=36)]))
    assert table.report.warnings == ("1 visit more than 6 months off the VISCODE, first in line 4",)
    assert len(table.frame) == 3


def test_visits_that_stand_there_twice(tmp_path: Path) -> None:
    """Of two rows of a visit the one that observed more stays, else the first; two subjects' visits are not one."""
    rows = [
        row(),
        row(month=72, Hippocampus=""),
        row(month=72, Ventricles=33000),
        row(rid=3),
        row(rid=3, month=72, Ventricles=36000),
        row(rid=3, month=72),
    ]
    table = read(write(tmp_path / "a.csv", rows))
    assert table.lines == (2, 4, 5, 6)
    assert table.frame["Ventricles_ICV"].tolist() == [0.02, 0.022, 0.02, 0.024]
    assert table.report.warnings == ("2 rows of a visit that stands there twice, first line 3",)
    assert table.report.counts() == {"of a visit that stands there twice": 2}


def test_two_visit_codes_at_one_time(tmp_path: Path) -> None:
    """Two rows of a subject with the same month are one visit, though their VISCODE differ."""
    table = read(write(tmp_path / "a.csv", [row(), row(VISCODE="m03"), row(month=12)]))
    assert table.lines == (2, 4)


BAD = [
    row(rid=2190),
    row(rid=2190, month=3, Month_bl=0.45),
    row(rid=2190, month=12),
    row(rid=4579),
    row(rid=4579, month=3, Month_bl=0.45),
    row(rid=4579, month=12),
    row(rid=4960),
    row(rid=4960, month=48, EXAMDATE="2011-03-08"),
    row(rid=4960, month=60),
    row(5204, 0, **dict.fromkeys((*adni.SIX, "ICV"), "")),
    row(rid=1088),
    row(rid=1088, month=72),
    row(rid=1088, month=72),
    row(rid=1195),
    row(rid=1195, month=48),
    row(rid=1195, month=48),
    row(rid=4674),
    row(rid=4674, month=12, ICV=293000),
]


def test_known_bad_rows_of_tadpole(tmp_path: Path) -> None:
    """The rows that are known to be wrong are dropped, by name, or their volumes where only ICV is wrong."""
    table = read(write(tmp_path / "TADPOLE_D1_D2.csv", BAD, "TADPOLE"))
    known = [(drop.id, drop.row) for drop in table.report.drops if drop.why == "known as a bad row of TADPOLE"]
    assert known == [(2190, 3), (4579, 6), (4960, 9), (5204, 11)]
    assert [(drop.id, drop.row) for drop in table.report.drops[4:]] == [(1088, 14), (1195, 17)]
    assert table.report.kept == len(table.frame) == 12
    assert table.report.warnings == (
        "1 implausible ICV, volumes taken as missing, first in line 19",
        "2 rows of a visit that stands there twice, first line 14",
    )
    small = table.frame[(table.frame["id"] == 4674) & (table.frame["time"] > 0)]
    assert small[list(table.features)].isna().all(axis=None)


def test_bad_rows_are_of_tadpole_only(tmp_path: Path) -> None:
    """In ADNIMERGE, which is corrected from year to year, no row is dropped for its RID."""
    table = read(write(tmp_path / "ADNIMERGE.csv", BAD))
    assert table.report.counts() == {"of a visit that stands there twice": 2}


def test_parts_of_tadpole(tmp_path: Path) -> None:
    """D2 is read alone when asked for, and ADNIMERGE has no such part."""
    rows = [row(), row(month=12), row(rid=101), row(rid=101, month=12)]
    table = adni.read(write(tmp_path / "t.csv", rows, "TADPOLE"), part="D2")
    assert table.frame["id"].tolist() == [101, 101]
    assert table.report.counts() == {"not in D2": 2}
    with pytest.raises(DataError, match="no column 'D2' in this file, which seems to be ADNIMERGE"):
        adni.read(write(tmp_path / "a.csv", rows), part="D2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,time,x\n1,0,2\n", r"neither ADNIMERGE nor TADPOLE_D1_D2, which have columns RID, .*; missing: RID, VISC"),
        ("RID;VISCODE;DX\n1;bl;NL\n", r"neither .*; the right delimiter seems to be ';', expected ','"),
        ("RID,VISCODE,Month_bl,DX\n1,bl,0,NL\n", "no column 'Ventricles' in this file, which seems to be ADNIMERGE"),
        ("", "an empty file"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    """A file that is neither is refused in one line that says which columns were expected."""
    path = tmp_path / "other.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        adni.read(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"Hippocampus": "big"}, "3: column 'Hippocampus': 'big', expected a number"),
        ({"RID": "2.5"}, "3: column 'RID': '2.5', expected an integer"),
        ({"RID": ""}, "3: column 'RID': '', expected an integer"),
        ({"DX": "ill"}, "3: column 'DX': 'ill', expected NL, CN, MCI, Dementia or a change such as NL to MCI"),
        ({"DXCHANGE": "12"}, "3: column 'DXCHANGE': 12, expected 1 to 9, or -1 for unknown"),
        ({"Month_bl": "", "Years_bl": "", "EXAMDATE": "2005-13-40"}, "3: column 'EXAMDATE': '2005-13-40' is no date"),
    ],
)
def test_wrong_cells_are_named(tmp_path: Path, cells: dict[str, str], message: str) -> None:
    """A cell that cannot be read is named by file, line and column."""
    path = write(tmp_path / "a.csv", [row(), row(2, 12, **cells)], "TADPOLE")
    with pytest.raises(DataError) as caught:
        adni.read(path)
    assert str(caught.value).startswith(f"{path}:{message}")


def test_single_visits_are_counted(tmp_path: Path) -> None:
    """A subject with one visit is worth a warning, as `test_all_forms_are_the_same_table` is not."""
    with pytest.warns(DataWarning, match="1 subject with one visit"):
        adni.read(write(tmp_path / "a.csv", [row(), row(month=12), row(rid=3)]))
