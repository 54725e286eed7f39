"""mzSpecLib as text and as JSON, beside JSON of matchms and GNPS."""

import pytest

from tests.fuzz.corpus import sound_files
from tests.made_spectra import parsed

FORMS = ("matchms.json", "gnps.json", "plain.mzlib.json", "plain.mzlib.txt")


def what_is_read(spectrum):
    return (
        round(spectrum.precursor_mz, 4),
        spectrum.adduct_text,
        spectrum.formula_text,
        spectrum.mz.round(4).tolist(),
    )


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_what_msp_gives(tmp_path, name):
    files = sound_files()
    found = parsed(tmp_path, files[name], name)
    expected = parsed(tmp_path, files["plain.msp"], "in.msp")

    assert [what_is_read(one) for one in found] == [what_is_read(one) for one in expected]
    assert [one.source.index for one in found] == [0, 1, 2, 3]
    assert [one.polarity for one in found] == [1, 1, 1, -1]


@pytest.mark.parametrize("name", ["plain.mzlib.json", "plain.mzlib.txt"])
def test_units_and_attributes_of_all_spectra_are_understood(tmp_path, name):
    first = parsed(tmp_path, sound_files()[name], name)[0]

    assert first.collision_energy_text.endswith(" eV")
    assert first.collision_energy_ev == float(first.collision_energy_text.split()[0])
    assert first.metadata["title"] == "unknown \\ [1]"
    assert first.instrument == ("orbitrap" if name.endswith("txt") else "")


LIBRARY = """<mzSpecLib>
MS:1003186|library format version=1.0
<Spectrum=1>
MS:1000744|selected ion m/z=195.08765
MS:1003059|number of peaks=2
<Analyte=1>
MS:1002813|adduct ion formula=[M+H]+
<Peaks>
138.0662\t1000\t?
110.0713\t600\t?
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("", "", ()),
        ("<Peaks>", "<Peks>", ()),
        ("<Peaks>\n", "", ()),
        ("<Spectrum=1>\n", "", ("1 line of its attributes could not be read",)),
        ("110.0713", "?", ("1 of 2 peak lines were not readable and left out",)),
        ("110.0713\t600\t?\n", "", ("number of peaks says 2, and there are 1",)),
        ("MS:1000744|", "", ("1 line of its attributes could not be read",)),
    ],
)
def test_what_is_broken_in_a_library_is_said(tmp_path, old, new, said):
    (found,) = parsed(tmp_path, LIBRARY.replace(old, new), "a.mzlib.txt")

    assert found.warnings == said
    assert found.mz.size == (2 if "110.0713" not in old else 1)
