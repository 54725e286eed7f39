"""From what was computed for a case to the one outcome of each of its spectra."""

from duallgd_cli.chem.adduct import parse_adduct
from duallgd_cli.predict import stages
from duallgd_cli.predict.prediction import (
    OK,
    Candidate,
    Case,
    Member,
    Outcome,
    Prediction,
    sentences,
)
from duallgd_cli.predict.ranking import RankingModel, rank


def predictions_of(case: Case, model: RankingModel, top_k: int) -> list[Prediction]:
    """The predictions of a case's spectra, in the order of its members.

    Spectra read together share their candidates; one that could not be used has its own status
    and none.
    """
    with stages.stage(stages.RANK):
        candidates, confidence_top10 = rank(case, model)
    return [
        _prediction(case, place, candidates[:top_k], confidence_top10)
        for place in range(len(case.members))
    ]


def _prediction(
    case: Case, place: int, candidates: tuple[Candidate, ...], confidence_top10: float
) -> Prediction:
    member = case.members[place]
    group = tuple(other.source for other in case.members if other.status == OK)
    took_part = member.status == OK
    status = member.status if not took_part else OK if candidates else _why(case.outcomes)
    first = case.outcomes[0]
    return Prediction(
        source=member.source,
        spectrum_id=member.spectrum_id,
        feature_id=member.feature_id,
        scans=member.scans,
        precursor_mz=member.precursor_mz,
        formula=first.formula or member.formula_text,
        adduct=first.adduct or _normalised(member.adduct_text),
        status=status,
        message=_message(case, place),
        hypotheses=case.outcomes if took_part else (),
        candidates=candidates if took_part else (),
        confidence_top10=confidence_top10 if took_part else 0.0,
        group=group if took_part else (member.source,),
        seconds=sum(outcome.seconds for outcome in case.outcomes),
        name=member.name,
        rt_seconds=member.rt_seconds,
        collision_energy=member.collision_energy,
        warnings=_warnings(case, member),
    )


def _normalised(adduct: str) -> str:
    known = parse_adduct(adduct)
    return adduct if known is None else known.name


def _warnings(case: Case, member: Member) -> str:
    """Reading's warnings and what accompanies candidates; the message says them too."""
    remarks = (outcome.message for outcome in case.outcomes if outcome.status == OK)
    return sentences(member.warnings, *(remarks if member.status == OK else ()))


def _why(outcomes: tuple[Outcome, ...]) -> str:
    return next(outcome.status for outcome in outcomes if outcome.status != OK)


def _message(case: Case, place: int) -> str:
    member = case.members[place]
    if member.status != OK:
        return member.message
    several = len(case.outcomes) > 1
    remarks = [
        f"{outcome.formula} {outcome.adduct}: {outcome.message}" if several else outcome.message
        for outcome in case.outcomes
        if outcome.message
    ]
    others = [
        str(other.source.index)
        for at, other in enumerate(case.members)
        if at != place and other.status == OK
    ]
    together = f"read together with index {', '.join(others)}" if others else ""
    return sentences(member.message, *remarks, together)
