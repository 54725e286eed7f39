"""From spectra to ranked structures: the predict use case and its stages."""
