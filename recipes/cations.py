"""Permanent cations made from neutral structures, which collections of structures leave out.

    python recipes/cations.py structures.smi -o cations.tsv --limit 50000

The table is named under ``structures:`` of a recipe, beside the file that it was made of. Salts are
stripped and charges taken away before structures are collected, so ammonium, pyridinium,
phosphonium and flavylium ions are missing there; in spectra ([M]+) they are not. Each is made as
chemists make it, or as plants do: amines and ring nitrogens are alkylated, halides given to
triphenylphosphine, flavones and flavonols reduced to anthocyanidins.
"""

from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import typer
from rdkit import Chem, rdBase
from rdkit.Chem import rdChemReactions

from duallgd_cli.chem.identity import canonical_smiles, parse_smiles
from duallgd_cli.data.structures import read_rows
from duallgd_cli.errors import DuallgdError, MoleculeError, UnreadableError, printable
from duallgd_cli.files import claim, write_atomically

# What alkylates, each as often as the others.
_ALKYL: Final = ("C", "CC", "Cc1ccccc1", "CCCC", "CCCCCCCCCCCC")
# Types of cations, the rarest first, for a molecule becomes one cation. Of each: what a SMILES must
# hold for its molecule to be looked at, for most rows are passed over so once only a rare type is
# still wanted; SMARTS of what reacts, its atoms mapped, and of what it becomes, where {R} stands
# for an alkyl group.
CATION_TYPES: Final = {
    "flavylium": (
        "o",
        "[O]=[c:1]1[c:2][c:3](-[c:4])[o:5][c:6][c:7]1",
        "[cH:1]1[c:2][c:3](-[c:4])[o+:5][c:6][c:7]1",
    ),
    "phosphonium": (
        "",
        "[CX4;!$(C(F)F);!$(C([Cl,Br,I])[Cl,Br,I]):1][Cl,Br,I]",
        "[C:1][P+](c1ccccc1)(c1ccccc1)c1ccccc1",
    ),
    "imidazolium": (
        "n",
        "[n;X2;r5:1]%11:[c:2]:[n;X3:3]:[c:4]:[c:5]:%11",
        "[n+:1]%11({R}):[c:2]:[n:3]:[c:4]:[c:5]:%11",
    ),
    "pyridinium": ("n", "[n;X2;r6;!$(n:[n,o,s]):1]", "[n+:1]{R}"),
    "ammonium": (
        "N",
        "[NX3;H0;!$(N-[C,S,P]=[O,S,N]);!$(N-a);!$(N-C=C);!$(N-[!#6]);!$(N-C#N):1]",
        "[N+:1]{R}",
    ),
}


def cations(source: Path, limit: int, seed: int = 1) -> list[tuple[str, str]]:
    """Canonical SMILES and types of cations made from the structures of fold train in a file.

    At most one is made of each structure, and of each type at most its equal share of the limit;
    the seed chooses sites and alkyl groups.
    """
    most = -(-limit // len(CATION_TYPES))
    generator, counts = np.random.default_rng(seed), Counter[str]()
    made: list[tuple[str, str]] = []
    for row in read_rows(source):
        wanted = [name for name in CATION_TYPES if counts[name] < most]
        if not wanted or len(made) == limit:
            break
        hinted = [name for name in wanted if CATION_TYPES[name][0] in row.smiles]
        cation = _first(row.smiles, hinted, generator) if row.fold == "train" and hinted else None
        if cation is not None:
            counts[cation[1]] += 1
            made.append(cation)
    if not made:
        raise UnreadableError(f"{source} holds no structure that a cation could be made of")
    return made


@lru_cache
def _reactions(name: str) -> tuple[rdChemReactions.ChemicalReaction, ...]:
    """How a type of cation is made, with each alkyl group."""
    _, site, product = CATION_TYPES[name]
    products = dict.fromkeys(product.replace("{R}", alkyl) for alkyl in _ALKYL)
    return tuple(rdChemReactions.ReactionFromSmarts(f"{site}>>{made}") for made in products)


def _first(smiles: str, types: list[str], generator: np.random.Generator) -> tuple[str, str] | None:
    """The first of the types that the molecule can become, at one of its sites."""
    try:
        mol = parse_smiles(smiles)
    except MoleculeError:
        return None
    for name in types:
        reaction = _reactions(name)[generator.integers(len(_reactions(name)))]
        made = reaction.RunReactants((mol,))
        if made:
            product = made[generator.integers(len(made))][0]
            with rdBase.BlockLogs():
                is_sound = not Chem.SanitizeMol(product, catchErrors=True)
            if is_sound and Chem.GetFormalCharge(product) == 1:
                cation = canonical_smiles(product)
                if "." not in cation:
                    return cation, name
    return None


def main(
    structures: Annotated[Path, typer.Argument(help="Neutral structures, as a recipe names them.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Table to write, .tsv.")],
    limit: Annotated[int, typer.Option(min=1, help="Cations, a fifth of each type.")] = 50_000,
    seed: Annotated[int, typer.Option(min=0, help="Of sites and alkyl groups.")] = 1,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
) -> None:
    """Write permanent cations of several types as a table of structures."""
    claim({"the table": output}, [structures], force=force)
    made = cations(structures, limit, seed)
    rows = (f"{smiles}\t{kind}\n" for smiles, kind in made)
    write_atomically(output, ["smiles\tname\n", *rows])
    typer.echo(f"{len(made)} cations -> {output}", err=True)


if __name__ == "__main__":
    try:
        typer.run(main)
    except DuallgdError as error:
        raise SystemExit(f"error: {printable(str(error))}") from None
