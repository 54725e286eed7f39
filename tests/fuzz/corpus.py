"""Sound input files, a few compounds of each, as some fifty programs write them, to be broken."""

import gzip
from functools import cache

from tests.dialects import DIALECTS, MADE

FEW = MADE[:4]
NAMES = {made.name for made in FEW}


@cache
def sound_files():
    """Content by file name."""
    files = {
        f"{n:02}{dialect.file[1:]}": dialect.write([m for m in dialect.made if m.name in NAMES])
        for n, dialect in enumerate(DIALECTS.values())
    }
    table = DIALECTS["MassSpecGym TSV"].write(FEW)
    files["crlf.mgf"] = DIALECTS["pyteomics MGF"].write(FEW).replace("\n", "\r\n")
    # As a spreadsheet saves it where commas mark decimals.
    files["semicolons.csv"] = "sep=;\r\n" + table.replace("\t", ";").replace("\n", "\r\n")
    content = {name: text.encode() for name, text in files.items()}
    content["packed.mgf.gz"] = gzip.compress(content["crlf.mgf"], mtime=0)
    return content
