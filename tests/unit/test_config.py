"""Settings: read strictly, refused by name, written so that they can be read back."""

import math
from dataclasses import dataclass, field
from typing import Literal

import pytest

from duallgd_cli import config
from duallgd_cli.config import SamplingSettings, parse
from duallgd_cli.errors import ConfigError
from duallgd_cli.formulas import FormulaSettings
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.spectra.annotation import AnnotationSettings
from duallgd_cli.spectra.cleaning import CleaningSettings
from duallgd_cli.spectra.formulas import FormulaLimits
from duallgd_cli.train.settings import (
    OptimiserSettings,
    RecipeSettings,
    TrainingData,
    TrainingSettings,
)


@dataclass(frozen=True, slots=True)
class Inner:
    n_layers: int = 3
    rate: float = 0.5
    kind: Literal["softmax", "favor"] = "softmax"
    limit: float | None = None
    widths: tuple[int, ...] = (1, 2)
    name: str = ""
    flag: bool = False


@dataclass(frozen=True, slots=True)
class Outer:
    denoiser: Inner = field(default_factory=Inner)
    sampling: SamplingSettings = field(default_factory=SamplingSettings)


def test_yaml_is_read_back_from_a_file(tmp_path):
    settings = Outer(Inner(limit=None, rate=1e-5))
    (tmp_path / "a.yaml").write_text(config.commented_yaml(settings), encoding="utf-8")

    assert parse(Outer, config.read_mapping(tmp_path / "a.yaml")) == settings


def test_overrides_are_applied_in_turn():
    given = ("denoiser.limit=3", "denoiser.limit=null", "sampling.steps=7", "denoiser.widths=[3,4]")

    settings = parse(Outer, config.assigned(given))

    assert settings == Outer(Inner(widths=(3, 4)), SamplingSettings(steps=7))


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("denoiser.n_layers", "name.field=value"),
        ("=3", "name.field=value"),
        ("denoiser.name=[", "is not YAML"),
        ("samples=5", r"unknown setting samples; did you mean sampling\.samples\?"),
        ("sampels=5", r"unknown setting sampels; did you mean sampling\.samples\?"),
        ("zzz=1", "unknown setting zzz; known here: denoiser, sampling"),
        ("denoise.n_layers=3", "unknown setting denoise; did you mean denoiser"),
        ("denoiser.n_layer=5", r"denoiser\.n_layer; did you mean denoiser\.n_layers"),
        ("denoiser.rate.x=3", r"setting denoiser\.rate has no field x"),
        ("denoiser=3", "setting denoiser must hold fields of its own"),
        ("denoiser.n_layers=2.5", r"setting denoiser\.n_layers must be a whole number, not 2\.5"),
        ("denoiser.n_layers=true", "must be a whole number, not True"),
        ("denoiser.rate=fast", r"setting denoiser\.rate must be a number, not 'fast'"),
        ("denoiser.kind=exact", "must be one of softmax, favor, not 'exact'"),
        ("denoiser.widths=3", "must be a list"),
        ("denoiser.widths=[a]", r"denoiser\.widths\[0\] must be a whole number"),
        ("denoiser.flag=1", "must be true or false"),
        ("sampling.steps=0", "sampling: steps must be 1 to 500, not 0"),
        ("sampling.steps=0x" + "F" * 5000, "steps must be at most 1000000000000000000, not a numb"),
        ("sampling.timeout_s=0", "timeout_s must be above 0, not 0"),
        ("sampling.timeout_s=" + "9" * 400, "timeout_s must be a finite number, not inf"),
        ("sampling.timeout_s=0x" + "F" * 5000, "timeout_s must be a number, not a number of"),
        ("sampling.timeout_s=inf", r"sampling\.timeout_s must be a finite number, not inf"),
        ("sampling.timeout_s=.nan", r"sampling\.timeout_s must be a finite number, not nan"),
        ("sampling.steps=&a [*a]", "steps must be a whole number"),
        ("denoiser.widths=&a [&b [*a], *b, *a]", "must be a whole number"),
        ("denoiser.name=!!python/object:os.system", "is not YAML"),
        ("sampling.sources=3", r"sampling\.sources must be a text, not 3"),
        ("sampling.sources=noise", "sampling: sources 'noise' are not of the form"),
    ],
)
def test_a_wrong_override_says_what_is_wrong(assignment, message):
    with pytest.raises(ConfigError, match=message):
        parse(Outer, config.assigned([assignment]))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("- 1\n", "hold a list"),
        ("PK\x03\x04", r"cannot read settings: .*zip-compressed; unpack it"),
        ("a: [1\n", r"are not YAML: .* \(line 2\)"),
        ("[" * 100_000, "nested too deeply"),
        ("steps: 1\nsamples: 2\nsteps: 3\n", "'steps' stands twice"),
        ("sampling: {steps: 1, steps: 2}\n", "'steps' stands twice"),
        ("steps: " + "9" * 5000, "not YAML"),
        ("absent.yaml", r"cannot read settings: .*absent\.yaml does not exist"),
        ("/dev/zero", "is a device"),
    ],
)
def test_a_file_that_would_be_misread_is_refused_in_a_sentence(tmp_path, text, reason):
    (tmp_path / "a.yaml").write_text(text)
    path = tmp_path / (text if "/" in text or text.endswith(".yaml") else "a.yaml")

    with pytest.raises(ConfigError, match=reason) as refused:
        config.read_mapping(path)

    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500 + len(str(path))


@pytest.mark.parametrize(
    ("settings", "values"),
    [
        (AnnotationSettings, {"ppm": 0.0, "qtof_ppm": 1e6}),
        (CleaningSettings, {"max_peaks": 0, "isotope_margin_da": math.nan}),
        (FormulaLimits, {"precursor_ppm": 0}),
        (FormulaSettings, {"precursor_ppm": math.nan}),
        (PredictSettings, {"formula_candidates": 0}),
        (SamplingSettings, {"database_share": 0.0}),
        (OptimiserSettings, {"learning_rate": 0, "warmup_share": 1.0, "weight_decay": -1.0}),
        (OptimiserSettings, {"ema": 1.0}),
        (TrainingData, {"pairs_per_batch": 0, "clean_share": 1.5, "simulated_share": -0.5}),
        (TrainingData, {"workers": -1}),
        (TrainingSettings, {"steps": -1, "checkpoint_every": -5}),
    ],
)
def test_settings_out_of_range_are_refused_by_name(settings, values):
    for name, value in values.items():
        with pytest.raises(ConfigError, match=f"{name} must be"):
            settings(**{name: value})


def test_a_setting_without_a_default_is_asked_for():
    with pytest.raises(ConfigError, match="spectra is missing; add a line 'spectra: "):
        parse(RecipeSettings, {"structures": ["a.smi"]})


@pytest.mark.parametrize(
    ("text", "quotas"),
    [
        ("noise=1", {"noise": 1}),
        ("enumerated=60 templates=15 noise=25", {"enumerated": 60, "templates": 15, "noise": 25}),
        (" noise=2,\ttemplates=3,", {"noise": 2, "templates": 3}),
        ("noise=0 own_source=007", {"noise": 0, "own_source": 7}),
        ("naïve=1", {"naïve": 1}),
    ],
)
def test_parts_of_the_samples_are_read_in_their_order(text, quotas):
    assert list(config.parse_quotas(text).items()) == list(quotas.items())


@pytest.mark.parametrize(
    "text",
    [
        *("", "noise", "noise=", "=1", "noise=-1", "noise=1.5", "noise=²", "noise=٣", "noise = 1"),
        *("noise=1=2", "a-b=1", "1a=1", "noise=1 noise=2", "noise=0", "noise=0 templates=0"),
        *("noise=1;templates=2", f"noise={10**6}", "noise=" + "9" * 5000),
    ],
)
def test_parts_of_the_samples_that_cannot_be_meant_are_refused_in_a_sentence(text):
    with pytest.raises(ConfigError, match="are not of the form 'enumerated=60") as refused:
        SamplingSettings(sources=text)

    assert len(str(refused.value)) < 500
