"""The noise process over bond classes; knows neither networks nor molecules."""
