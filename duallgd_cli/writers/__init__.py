"""The files that predictions leave in: tables, JSON lines, structure files, mzTab-M."""
